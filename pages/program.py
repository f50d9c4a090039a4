"""Program: what every device runs under a strategy or a schedule, line by line, beside when it runs it."""

import streamlit as st

from pages.parts.program.sources import chosen_program
from pages.parts.program.view import program_view
from pages.shared.markdown import literal
from tessel_core.errors import InputError

try:
    looked = chosen_program()
    if looked is not None:
        program_view(looked)
except InputError as error:
    st.error(literal(f"{error}."), icon=":material/error:")

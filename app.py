"""Tessel Explorer in the browser: `python -m streamlit run app.py`."""

import streamlit as st

from pages.shared.look import look
from pages.shared.session import keep_address, restore
from pages.shared.words import literal

st.set_page_config(page_title="Tessel Explorer", page_icon=":material/view_timeline:", layout="wide")
page = st.navigation(
    [
        st.Page("pages/start.py", title="Start", icon=":material/flag:", default=True),
        st.Page("pages/schedule.py", title="Schedule", icon=":material/view_timeline:"),
    ],
    position="top",
)
look()
complaint = restore()
if complaint:
    st.warning(literal(complaint))
page.run()
keep_address()

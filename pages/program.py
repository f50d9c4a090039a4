"""Program: what every device runs under a strategy or a schedule, line by line, beside when it runs it."""

from pages.parts.program.sources import chosen_program
from pages.parts.program.view import program_view
from pages.shared.widgets import complain
from tessel_core.errors import InputError

try:
    looked = chosen_program()
    if looked is not None:
        program_view(looked)
except InputError as error:
    complain(error)

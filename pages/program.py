"""Program page: the operations that each rank runs, line by line, beside their simulated times."""

from pages.parts.program.sources import chosen_program
from pages.parts.program.view import program_view
from pages.shared.widgets import complaining

with complaining():
    looked = chosen_program()
    if looked is not None:
        program_view(looked)

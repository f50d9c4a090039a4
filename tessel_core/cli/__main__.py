"""Run the command line with `python -m tessel_core.cli`."""

from tessel_core.cli import main_of_process

main_of_process()

"""`python -m tessel_core.cli`."""

from tessel_core.cli.command import main

main()

"""`python -m tessel_core.cli`."""

from tessel_core.cli import main

main()

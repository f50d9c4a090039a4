"""`python -m tessel_core`: the same as `tessel`."""

from tessel_core.cli import main

if __name__ == "__main__":
    main()

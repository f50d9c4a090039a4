"""`python -m tessel_core`: the same as `tessel`."""

from tessel_core.cli import main_of_process

if __name__ == "__main__":
    main_of_process()

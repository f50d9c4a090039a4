"""Entry point of `python -m tessel_core`, which runs the `tessel` command line."""

from tessel_core.cli import main_of_process

if __name__ == "__main__":
    main_of_process()

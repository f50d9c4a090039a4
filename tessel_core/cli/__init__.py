"""Command line of Tessel, with one module per command."""

import contextlib
import os
import sys
import threading


def main() -> None:
    """Run the command that the arguments name.

    If Ctrl-C arrives while modules load, the process ends without a traceback.
    """
    try:
        from tessel_core.cli.command import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


def main_of_process() -> None:
    """Run `main` as the whole process, and end the process at once if threads of a search are still running.

    Such a thread compiles, or runs CP-SAT after its search was abandoned.  It is inside C++ code, and would abort an
    interpreter that is shutting down when it returns to Python.
    """
    try:
        main()
    except SystemExit as ended:
        from tessel_core.control import Abandonable

        if any(isinstance(thread, Abandonable) for thread in threading.enumerate()):
            for stream in filter(None, (sys.stdout, sys.stderr)):
                with contextlib.suppress(OSError, ValueError):
                    stream.flush()
            os._exit(ended.code if isinstance(ended.code, int) else 0)
        raise

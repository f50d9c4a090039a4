"""The same verbs from a terminal, a file a verb."""

import contextlib
import os
import sys
import threading


def main() -> None:
    """Run the verb that the arguments name; an interrupt while its code is still loading ends it quietly too."""
    try:
        from tessel_core.cli.command import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


def main_of_process() -> None:
    """`main`, where the process ends with it: at once, if threads of a search are left.

    One that compiles, or that asks CP-SAT and was given up, is in C++ then, and aborts a Python that is ending when it
    comes back to it.
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

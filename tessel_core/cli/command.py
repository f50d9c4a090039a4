"""Entry point of the command line. Results go to stdout; progress, notes and errors go to stderr."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, NoReturn

import typer
from typer.exceptions import TyperException

from tessel_core.bundle import BUNDLE
from tessel_core.cli.streams import open_streams
from tessel_core.cli.verbs import Verbs
from tessel_core.errors import InputError
from tessel_core.version import __version__

app = typer.Typer(
    name="tessel",
    cls=Verbs,
    help="Place, schedule and simulate networks that are too large for one device.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

_LOOPBACK = "127.0.0.1"
_FLAGS = {"model": "--size", "export": "--to"}
"""Options for names that the core uses in errors. Listed only where the option's name differs."""


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tessel {__version__}")
        raise typer.Exit


@app.callback()
def _tessel(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Accept the options of `tessel` itself.

    Without this callback, Typer would run `app` also if the user does not type its name.
    """


@app.command("app")
def open_app(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of this machine to serve the app on.")] = 8501,
    headless: Annotated[bool, typer.Option(help="Do not open a browser window.")] = False,
) -> None:
    """Open the browser app. Only this machine can connect to it."""
    import signal
    import subprocess

    script = BUNDLE / "app.py"
    if _taken(port):
        raise InputError("--port", f"{port} is in use. The app may be open already; otherwise choose another port")
    command = [sys.executable, "-m", "streamlit", "run", str(script), f"--server.address={_LOOPBACK}"]
    command += [f"--server.port={port}", f"--server.headless={str(headless).lower()}"]
    with subprocess.Popen(command, cwd=script.parent) as server, contextlib.suppress(KeyboardInterrupt):
        signal.signal(signal.SIGTERM, lambda *_: server.terminate())
        while server.poll() is None and not _taken(port):
            time.sleep(0.05)
        if server.poll() is None:
            sys.stderr.write(f"Tessel Explorer is at http://{_LOOPBACK}:{port} (Ctrl-C stops it)\n")
        raise typer.Exit(server.wait())


def _taken(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex((_LOOPBACK, port)) == 0


def main() -> None:
    """Run the command line. Wrong input prints one line and exits with 2, without a traceback."""
    try:
        open_streams()
        _refuse_without_value(sys.argv[1:])
        code = app(standalone_mode=False) or 0
        sys.stdout.flush()
        _compile_later()
        sys.exit(code)
    except InputError as error:
        _fail(f"{_as_typed(error.where)}: {error.why}")
    except TyperException as error:
        # An error without a message means that no command was given. Typer has then printed the help.
        message = error.format_message()
        _fail(f"{_verb_of(error)}: {message}") if message else sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)


_EARLIER_MEANING = {"--recompute": ("full", "none,full"), "--zero": ("1", "0,1")}
"""Options that took no value in earlier versions, with the value that now means the same.

The first value is for one strategy, and the second for a sweep.
"""


def _refuse_without_value(words: Sequence[str]) -> None:
    """Raise InputError if an option of an earlier version is given without the value that it now needs."""
    for word, after in pairwise([*words, ""]):
        if word in _EARLIER_MEANING and (not after or after.startswith("-")):
            meant = _EARLIER_MEANING[word]["sweep" in words]
            raise InputError(word, f"needs a value; the earlier meaning of a bare {word} is {word} {meant}")


def _compile_later() -> None:
    """Let a compilation that a search began continue after this command ends, and print a note about it."""
    kernels = sys.modules.get("tessel_core.scheduling.kernels.warm")
    if kernels is not None and (note := kernels.finish_later()):
        sys.stderr.write(f"note: {note}\n")


def _verb_of(error: TyperException) -> str:
    """Return the command and subcommands of a usage error, such as "tessel sweep schedules"."""
    names, context = list[str](), getattr(error, "ctx", None)
    while context is not None and context.parent is not None:
        names.append(context.info_name)
        context = context.parent
    return " ".join(["tessel", *reversed(names)])


def _as_typed(where: str) -> str:
    """Return the option that the user typed for the place in an error.

    Return the place itself if no option belongs to it.
    """
    flags = {word.split("=")[0] for word in sys.argv[1:] if word.startswith("--")}
    return next((flag for flag in (f"--{where}", f"--{where}s", _FLAGS.get(where)) if flag in flags), where)


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    sys.exit(2)

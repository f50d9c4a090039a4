"""The same verbs from a terminal.  Results go to stdout, progress and errors to stderr."""

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

app = typer.Typer(
    name="tessel",
    cls=Verbs,
    help="Find, prove, compare and look at schedules of networks that do not fit on one device.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)

_LOOPBACK = "127.0.0.1"
_FLAGS = {"model": "--size", "export": "--to"}
"""Of what the core calls another way."""


@app.callback()
def _tessel() -> None:
    """Without this, typer takes the only command that is here for the whole."""


@app.command("app")
def open_app(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port on the loopback interface.")] = 8501,
    headless: Annotated[bool, typer.Option(help="Do not open a browser window.")] = False,
) -> None:
    """Open the browser app on loopback."""
    import signal
    import subprocess

    script = BUNDLE / "app.py"
    if _taken(port):
        raise InputError("--port", f"{port} is in use on this machine; is the app open already? Else choose another")
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
    """Run the command line; one line and exit code 2 for wrong input, never a traceback for it."""
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
        # What typer says of usage, as one line; it has already printed the help where no command was given.
        message = error.format_message()
        _fail(f"{_verb_of(error)}: {message}") if message else sys.exit(2)
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:
        sys.exit(0)


_MEANT = {"--recompute": ("full", "none,full"), "--zero": ("1", "0,1")}
"""Per option that had no value once, what it meant: of one strategy, and of a sweep."""


def _refuse_without_value(words: Sequence[str]) -> None:
    """Raise InputError for an option without a value that was said so before there were several."""
    for word, after in pairwise([*words, ""]):
        if word in _MEANT and (not after or after.startswith("-")):
            meant = _MEANT[word]["sweep" in words]
            raise InputError(word, f"takes a value; without one it meant {meant}, so say {word} {meant}")


def _compile_later() -> None:
    """What a search has begun to compile is not begun anew by the next command."""
    kernels = sys.modules.get("tessel_core.scheduling.kernels.warm")
    if kernels is not None and (note := kernels.finish_later()):
        sys.stderr.write(f"note: {note}\n")


def _verb_of(error: TyperException) -> str:
    """The command with its subcommands, as far as they were known: "tessel sweep schedules"."""
    names, context = list[str](), getattr(error, "ctx", None)
    while context is not None and context.parent is not None:
        names.append(context.info_name)
        context = context.parent
    return " ".join(["tessel", *reversed(names)])


def _as_typed(where: str) -> str:
    """The flag of what is wrong, where it was typed; the core knows no flags."""
    flags = {word.split("=")[0] for word in sys.argv[1:] if word.startswith("--")}
    return next((flag for flag in (f"--{where}", f"--{where}s", _FLAGS.get(where)) if flag in flags), where)


def _fail(message: str) -> NoReturn:
    sys.stderr.write(f"error: {' '.join(message.split())}\n")
    sys.exit(2)

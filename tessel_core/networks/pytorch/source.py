"""Execute a user's Python file that defines PyTorch modules."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NoReturn

from tessel_core.errors import InputError


def asked_function(target: str) -> tuple[str, str]:
    """Split `FILE.py:FUNCTION`. Raises InputError for another form, or if the file does not exist."""
    path, colon, name = target.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise InputError(target, "must be FILE.py:FUNCTION, such as model.py:build")
    if not Path(path).is_file():
        raise InputError(path, "is not a file")
    return path, name


@contextmanager
def no_silent_exit() -> Iterator[None]:
    """Make `os._exit` raise SystemExit. Otherwise it would end this process without a message.

    In child processes that the user's file starts by a fork, `os._exit` still works.
    """
    leave, here = os._exit, os.getpid()

    def refuse(status: int) -> NoReturn:
        if os.getpid() != here:
            leave(status)
        raise SystemExit(f"exit code {status} and no message")

    os._exit = refuse
    try:
        yield
    finally:
        os._exit = leave


def made_by(path: str, name: str) -> Any:
    """Execute a file and return the result of one of its functions. Raises InputError if it lacks this function."""
    spec = spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    function = getattr(module, name, None)
    if not callable(function):
        raise InputError(path, f"has no function {name}")
    return function()


def call(where: str, run: Callable[[], Any]) -> Any:
    """Run a user's code and return its result.

    If the code raises an exception, raise InputError with the exception and its line number.
    """
    try:
        return run()
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename != __file__]
        line = next((f" in line {each.lineno}" for each in frames if each.filename.endswith(_file_in(where))), "")
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) else line
        message = str(error).strip().partition("\n")[0]
        raise InputError(where, f"raised {type(error).__name__}{line}{f': {message}' if message else ''}") from None


def _file_in(where: str) -> str:
    return Path(where.partition(":")[0]).name

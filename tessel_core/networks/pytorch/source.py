"""A person's own Python file, which is executed to get at PyTorch modules."""

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
    """The file and the function of `FILE.py:FUNCTION`; InputError for another form, and where there is no such file."""
    path, colon, name = target.rpartition(":")
    if not colon or not path.endswith(".py") or not name.isidentifier():
        raise InputError(target, "must be FILE.py:FUNCTION, such as model.py:build")
    if not Path(path).is_file():
        raise InputError(path, "is not a file")
    return path, name


@contextmanager
def no_silent_exit() -> Iterator[None]:
    """Have `os._exit` raise: it would end this process without a message.  Forks of the file still end by it."""
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
    """What a function of a file returns; the file is executed.  InputError where it has no such function."""
    spec = spec_from_file_location(Path(path).stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.path.insert(0, str(Path(path).resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    found = getattr(module, name, None)
    if not callable(found):
        raise InputError(path, f"has no function {name}")
    return found()


def call(where: str, run: Callable[[], Any]) -> Any:
    """What foreign code returns; InputError with what it raised, and the line of it."""
    try:
        return run()
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        frames = [each for each in traceback.extract_tb(error.__traceback__) if each.filename != __file__]
        line = next((f" in line {each.lineno}" for each in frames if each.filename.endswith(_file_in(where))), "")
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) else line
        said = str(error).strip().partition("\n")[0]
        raise InputError(where, f"raised {type(error).__name__}{line}{f': {said}' if said else ''}") from None


def _file_in(where: str) -> str:
    return Path(where.partition(":")[0]).name

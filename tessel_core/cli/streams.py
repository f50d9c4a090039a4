"""Stdout and stderr as they are found: closed, on a full disk, or without our letters."""

from __future__ import annotations

import io
import os
import sys

from tessel_core.errors import InputError


def open_streams() -> None:
    """Make stdout complain as any file does, and both streams show ? for what they have no letter for.

    Raises
    ------
    InputError
        Where stdout is closed; a closed stderr swallows what is said there.
    """
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  open to the end
    if sys.stdout is None:
        raise InputError("stdout", "is closed, and answers go there")
    found = sys.stdout
    if type(found) is io.TextIOWrapper and type(getattr(found.buffer, "raw", found.buffer)) is io.FileIO:
        file = io.BufferedWriter(_Stdout(found.fileno(), "wb", closefd=False))
        sys.stdout = io.TextIOWrapper(file, found.encoding, line_buffering=found.line_buffering)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without µ or → shows ? and not a traceback


class _Stdout(io.FileIO):
    """Complains once where it cannot be written: the interpreter writes again, when it ends, what is left over."""

    _over = False

    def write(self, data, /):  # type: ignore[no-untyped-def]
        """As of any file; InputError in place of an OSError, but for a reader that has gone."""
        if self._over:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self._over = True
            if isinstance(error, BrokenPipeError):
                raise
            raise InputError("stdout", f"cannot be written: {error.strerror}") from None

"""Handle stdout and stderr that are closed, on a full disk, or in an encoding without some letters."""

from __future__ import annotations

import io
import os
import sys

from tessel_core.errors import InputError


def open_streams() -> None:
    """Make failed writes to stdout raise InputError, and make both streams print ? for letters they cannot encode.

    If stderr is closed, messages to it are lost.

    Raises
    ------
    InputError
        If stdout is closed.
    """
    sys.stderr = sys.stderr or open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  stays open
    if sys.stdout is None:
        raise InputError("stdout", "is closed, so the answer cannot be printed")
    found = sys.stdout
    if type(found) is io.TextIOWrapper and type(getattr(found.buffer, "raw", found.buffer)) is io.FileIO:
        file = io.BufferedWriter(_Stdout(found.fileno(), "wb", closefd=False))
        sys.stdout = io.TextIOWrapper(file, found.encoding, line_buffering=found.line_buffering)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # Without this, printing µ or → could raise UnicodeEncodeError.


class _Stdout(io.FileIO):
    """Stream that raises only on the first failed write. The interpreter flushes the rest again when it exits."""

    _failed = False

    def write(self, data, /):  # type: ignore[no-untyped-def]
        """Write bytes. If this fails, raise InputError instead of OSError, except for BrokenPipeError."""
        if self._failed:
            return len(data)
        try:
            return super().write(data)
        except OSError as error:
            self._failed = True
            if isinstance(error, BrokenPipeError):
                raise
            raise InputError("stdout", f"cannot be written: {error.strerror}") from None

"""Text as it lies in the store: compressed, and bounded when it is read back."""

from __future__ import annotations

import zlib

from tessel_core.errors import InputError
from tessel_core.formats.fields import LARGEST_FILE


def pack(text: str) -> bytes:
    """`text`, compressed: a tenth of it or less for documents of ours."""
    return zlib.compress(text.encode())


def unpack(packed: bytes, name: str) -> bytes:
    """The bytes of the text; InputError, `name` first, where they are damaged or too many."""
    try:
        reader = zlib.decompressobj()
        found = reader.decompress(packed, LARGEST_FILE)
    except zlib.error:
        raise InputError(name, "is damaged") from None
    if not reader.eof:
        raise InputError(name, f"is cut short, or has more than the {LARGEST_FILE:,} bytes that are read")
    return found

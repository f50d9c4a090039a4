"""What a file is by its first bytes, before anything is loaded that reads it."""

from __future__ import annotations

LARGEST_ONNX = 2**31 - 1
"""Bytes: protobuf's own limit of a message."""

_FIRST_BYTE = b"\x08"
"""The tag of `ir_version`, the first field of every model; no text begins with it."""


def looks_like_onnx(data: bytes) -> bool:
    """True for bytes that begin as an ONNX model does and no text can."""
    return data[:1] == _FIRST_BYTE

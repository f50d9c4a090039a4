"""A model's bytes without its weights: what is parsed stays small, however large or contrived the file is.

protobuf copies every byte that it parses, and an empty message of two bytes on disk takes a hundred in memory.  So
the file is walked first, in the wire format (protobuf.dev/programming-guides/encoding), and what a graph needs is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from io import FileIO
from typing import TYPE_CHECKING

from tessel_core.errors import InputError
from tessel_core.formats.fields import LARGEST_FILE

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor

_PAYLOADS = frozenset({"raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data"})
_KEPT_PAYLOAD = 8192
"""Bytes: what shapes are computed from is smaller, weights without their values are as good."""
_IGNORED = frozenset({"doc_string", "metadata_props", "training_info", "quantization_annotation", "string_data"})
_MOST_FIELDS = 2_000_000
"""20,000 nodes with the shapes of all their tensors take half as many."""
_DEEPEST = 100
"""protobuf's own limit of messages within messages."""
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class _Field:
    """The content of a field."""

    message: Descriptor | None
    is_text: bool
    is_payload: bool


def skeleton_of(data: bytes | OnDisk) -> bytes:
    """The serialized ModelProto in `data` without large payloads, documentation and fields unknown to the package.

    Raises InputError where the bytes are no protobuf message, or hold more than is read.
    """
    from onnx import ModelProto

    return _Walk(data).message(0, len(data), ModelProto.DESCRIPTOR, 0)


class OnDisk:
    """The bytes of an open file, of which only those that are looked at, and some beside them, are read."""

    def __init__(self, file: FileIO, size: int) -> None:
        self._file, self._size = file, size
        self._start, self._window = 0, b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        """The bytes start … stop, as of bytes; InputError where the file has become shorter."""
        start, stop = min(part.start, self._size), min(part.stop, self._size)
        if not self._start <= start <= stop <= self._start + len(self._window):
            self._file.seek(start)
            self._start, self._window = start, self._file.read(max(stop - start, _WINDOW)) or b""
            if len(self._window) < stop - start:
                raise InputError("the model", "has become shorter while it was read")
        return self._window[start - self._start : stop - self._start]


_WINDOW = 65_536


@cache
def _fields_of(message: Descriptor) -> dict[int, _Field]:
    """The fields of a message that are kept, by number."""
    return {
        number: _Field(field.message_type, field.type == field.TYPE_STRING, field.name in _PAYLOADS)
        for number, field in message.fields_by_number.items()
        if field.name not in _IGNORED
    }


class _Walk:
    """One way through the file; counts what it meets."""

    def __init__(self, data: bytes | OnDisk) -> None:
        self._data = data
        self._fields = 0
        self._kept = 0

    def message(self, start: int, end: int, kind: Descriptor, depth: int) -> bytes:
        """The kept part of the message at start … end."""
        if depth > _DEEPEST:
            raise InputError("the model", f"is nested deeper than {_DEEPEST} messages")
        known, kept, at = _fields_of(kind), bytearray(), start
        while at < end:
            self._count()
            tag, value = self._varint(at, end)
            after = self._end(tag & 7, value, end)
            field = known.get(tag >> 3)
            if field is not None and tag & 7 == _LENGTH:
                kept += self._of_length(tag, field, at, after, depth)
            elif field is not None:
                kept += self._keep(at, after)
            at = after
        return bytes(kept)

    def _of_length(self, tag: int, field: _Field, at: int, after: int, depth: int) -> bytes:
        """The kept part of a message, a text or a payload that spans at … after, its tag first."""
        _, value = self._varint(at, after)
        length, value = self._varint(value, after)
        if field.message is not None:
            part = self.message(value, after, field.message, depth + 1)
            return _encoded(tag) + _encoded(len(part)) + part
        if field.is_payload and length > _KEPT_PAYLOAD:
            return b""
        if field.is_text:
            _check_text(self._data[value:after], value)
        return self._keep(at, after)

    def _count(self) -> None:
        self._fields += 1
        if self._fields > _MOST_FIELDS:
            raise InputError("the model", f"has more than the {_MOST_FIELDS:,} fields that are read")

    def _keep(self, start: int, end: int) -> bytes:
        self._kept += end - start
        if self._kept > LARGEST_FILE:
            raise InputError("the model", f"has more than {LARGEST_FILE:,} bytes beside its weights")
        return self._data[start:end]

    def _end(self, wire: int, value: int, end: int) -> int:
        """Where a field ends whose value starts at `value`."""
        if wire == _VARINT:
            return self._varint(value, end)[1]
        if wire == _LENGTH:
            length, value = self._varint(value, end)
            after = value + length
        elif wire in (_EIGHT_BYTES, _FOUR_BYTES):
            after = value + (8 if wire == _EIGHT_BYTES else 4)
        else:
            raise _damaged(value)
        if after > end:
            raise _damaged(value)
        return after

    def _varint(self, at: int, end: int) -> tuple[int, int]:
        """A number, seven bits a byte and the lowest first, and where it ends."""
        number = shift = 0
        for place, byte in enumerate(self._data[at : min(end, at + 10)], at):
            number |= (byte & 127) << shift
            if byte < 128:
                return number, place + 1
            shift += 7
        raise _damaged(at)


def _encoded(number: int) -> bytes:
    """A number as `_Walk._varint` reads it."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)


def _check_text(text: bytes, start: int) -> None:
    """protobuf hands out bytes where a text is none."""
    try:
        text.decode()
    except UnicodeDecodeError:
        raise _damaged(start) from None


def _damaged(at: int) -> InputError:
    return InputError("the model", f"is damaged or cut off: byte {at:,} is no ONNX")

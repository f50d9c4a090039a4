"""Remove the weights from a model's bytes, so that parsing needs little memory even for huge or malicious files.

protobuf copies every byte that it parses, and an empty message of two bytes on disk takes a hundred bytes in memory.
So this module first walks the wire format (protobuf.dev/programming-guides/encoding) and keeps only what a graph needs.
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
_MAX_PAYLOAD_BYTES = 8192
"""Larger payloads are removed.  Constants for shapes are smaller, and weights are needed without their values."""
_IGNORED = frozenset({"doc_string", "metadata_props", "training_info", "quantization_annotation", "string_data"})
_MAX_FIELDS = 2_000_000
"""Largest number of fields.  20,000 nodes with the shapes of all their tensors have half as many."""
_MAX_DEPTH = 100
"""Largest depth of nested messages, which is also protobuf's limit."""
_WINDOW = 65_536
"""Smallest number of bytes read from disk at once."""
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5


@dataclass(frozen=True, slots=True)
class _Field:
    """Type of a protobuf field that is not removed."""

    message: Descriptor | None
    is_text: bool
    is_payload: bool


def skeleton_of(data: bytes | OnDisk) -> bytes:
    """Return the serialized ModelProto in `data` without large payloads, documentation and unknown fields.

    Raises InputError if the bytes are not a protobuf message or exceed a limit.
    """
    from onnx import ModelProto

    return _Walk(data).message(0, len(data), ModelProto.DESCRIPTOR, 0)


class OnDisk:
    """Bytes of an open file, of which only the accessed parts are read, in windows."""

    def __init__(self, file: FileIO, size: int) -> None:
        self._file, self._size = file, size
        self._start, self._window = 0, b""

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, part: slice) -> bytes:
        """Return the bytes of a slice.  Raises InputError if the file has become shorter."""
        start, stop = min(part.start, self._size), min(part.stop, self._size)
        if not self._start <= start <= stop <= self._start + len(self._window):
            self._file.seek(start)
            self._start, self._window = start, self._file.read(max(stop - start, _WINDOW)) or b""
            if len(self._window) < stop - start:
                raise InputError("the model", "has become shorter while it was read")
        return self._window[start - self._start : stop - self._start]


@cache
def _fields_of(message: Descriptor) -> dict[int, _Field]:
    """Return the fields of a message that are kept, by number."""
    return {
        number: _Field(field.message_type, field.type == field.TYPE_STRING, field.name in _PAYLOADS)
        for number, field in message.fields_by_number.items()
        if field.name not in _IGNORED
    }


class _Walk:
    """One pass through the file, which counts fields and kept bytes."""

    def __init__(self, data: bytes | OnDisk) -> None:
        self._data = data
        self._fields = 0
        self._kept = 0

    def message(self, start: int, end: int, kind: Descriptor, depth: int) -> bytes:
        """Return the kept part of the message in the bytes from `start` to `end`."""
        if depth > _MAX_DEPTH:
            raise InputError("the model", f"is nested deeper than {_MAX_DEPTH} messages")
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
        """Return the kept part of a field with a length: a message, a text or a payload.  `at` is its tag."""
        _, value = self._varint(at, after)
        length, value = self._varint(value, after)
        if field.message is not None:
            part = self.message(value, after, field.message, depth + 1)
            return _encoded(tag) + _encoded(len(part)) + part
        if field.is_payload and length > _MAX_PAYLOAD_BYTES:
            return b""
        if field.is_text:
            _check_text(self._data[value:after], value)
        return self._keep(at, after)

    def _count(self) -> None:
        self._fields += 1
        if self._fields > _MAX_FIELDS:
            raise InputError("the model", f"has more than the limit of {_MAX_FIELDS:,} fields")

    def _keep(self, start: int, end: int) -> bytes:
        self._kept += end - start
        if self._kept > LARGEST_FILE:
            raise InputError("the model", f"has more than {LARGEST_FILE:,} bytes beside its weights")
        return self._data[start:end]

    def _end(self, wire: int, value: int, end: int) -> int:
        """Return the end of a field whose value starts at `value`."""
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
        """Read a number with seven bits per byte, lowest first.  Returns the number and its end."""
        number = shift = 0
        for place, byte in enumerate(self._data[at : min(end, at + 10)], at):
            number |= (byte & 127) << shift
            if byte < 128:
                return number, place + 1
            shift += 7
        raise _damaged(at)


def _encoded(number: int) -> bytes:
    """Encode a number as a varint."""
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _check_text(text: bytes, start: int) -> None:
    """Raise InputError if a text is not UTF-8, because protobuf would return bytes for it."""
    try:
        text.decode()
    except UnicodeDecodeError:
        raise _damaged(start) from None


def _damaged(at: int) -> InputError:
    return InputError("the model", f"is damaged or cut off: byte {at:,} is not valid ONNX")

"""Read untrusted JSON field by field.  Errors name the path to the wrong value."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeVar

from tessel_core.errors import InputError
from tessel_core.units import MAGNITUDE

T = TypeVar("T")

LARGEST_FILE = 64 * 1000 * 1000
"""Largest file in bytes.  A schedule with a million runs fits."""
LARGEST_ONNX = 2**31 - 1
"""Largest ONNX model in bytes, which is protobuf's limit for a message."""


def looks_like_onnx(data: bytes) -> bool:
    """Return whether bytes begin like an ONNX model: with the tag of `ir_version`, which no text begins with."""
    return data[:1] == b"\x08"


def looks_like_config(data: bytes) -> bool:
    """Return whether bytes look like the config.json of a Hugging Face model: a `model_type` and no `format`."""
    head = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    return head[:1] == b"{" and b'"model_type"' in data[:1_000_000] and b'"format"' not in head[:200]


_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_encoded = json.JSONEncoder(ensure_ascii=False).encode


class Fields:
    """One JSON object and its path in the document.  Its methods raise InputError for wrong values."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise InputError(where, f"must be an object, got {_brief(value)}")
        self._values: dict[str, object] = value
        self.where = where

    def only(self, *known: str) -> None:
        """Raise InputError for a key that is not in `known`."""
        for key in self._values:
            if key not in known:
                raise InputError(self.where or "the file", f"unknown key {_brief(key)}, choose from {', '.join(known)}")

    def has(self, key: str) -> bool:
        return key in self._values

    def named(self) -> Iterator[str]:
        """Return the keys of an object whose keys are names.  Each must be valid text."""
        return (as_text(key, self.where or "the file") for key in self._values)

    def place(self, key: str) -> str:
        """Return the path of the value under `key`. For an empty key, return the prefix of all paths in this object."""
        return f"{self.where}.{key}" if self.where else key

    def get(self, key: str, default: object) -> object:
        """Return the raw value, or `default` if the key is missing."""
        return self._values.get(key, default)

    def take(self, key: str) -> object:
        """Return the raw value.  Raises InputError if the key is missing."""
        if key not in self._values:
            raise InputError(self.where or "the file", f"{key!r} is missing")
        return self._values[key]

    def fields(self, key: str) -> Fields:
        """Return the object under `key`."""
        return Fields(self.take(key), self.place(key))

    def items(self, key: str) -> Iterator[tuple[object, str]]:
        """Return the entries of a list, each with its path."""
        return as_items(self.take(key), self.place(key))

    def objects(self, key: str) -> Iterator[Fields]:
        """Return the entries of a list of objects."""
        return (Fields(entry, place) for entry, place in self.items(key))

    def text(self, key: str, default: str | None = None) -> str:
        """Return the text under `key`. If the key is missing, return `default`, if there is one."""
        if default is not None and key not in self._values:
            return default
        return as_text(self.take(key), self.place(key))

    def integer(self, key: str, default: int | None = None, least: int = -MAGNITUDE) -> int:
        if default is not None and key not in self._values:
            return default
        return as_integer(self.take(key), self.place(key), least)

    def number(self, key: str) -> float:
        return as_number(self.take(key), self.place(key))

    def truth(self, key: str) -> bool:
        return as_truth(self.take(key), self.place(key))

    def amount(self, key: str) -> float | None:
        """Return a finite number of at least 0; None if the key is missing or null."""
        return None if self.is_null(key) else as_amount(self.take(key), self.place(key))

    def others(self, *known: str) -> dict[str, object]:
        """Return the raw values of all keys that are not in `known`."""
        return {key: value for key, value in self._values.items() if key not in known}

    def is_null(self, key: str) -> bool:
        """Return whether the key is missing or null."""
        return self._values.get(key) is None


def as_items(value: object, where: str) -> Iterator[tuple[object, str]]:
    """Return the entries of a list, each with its path."""
    if not isinstance(value, list):
        raise InputError(where, f"must be a list, got {_brief(value)}")
    return ((entry, f"{where}[{i}]") for i, entry in enumerate(value))


def as_text(value: object, where: str) -> str:
    """Check that `value` is text that can be encoded as UTF-8, and return it."""
    if not isinstance(value, str):
        raise InputError(where, f"must be text, got {_brief(value)}")
    if not value.isascii() and _LONE_SURROGATE.search(value):
        raise InputError(where, f"contains half a character (a lone surrogate): {_brief(value)}")
    return value


def as_truth(value: object, where: str) -> bool:
    """Check that `value` is true or false, and return it."""
    if not isinstance(value, bool):
        raise InputError(where, f"must be true or false, got {_brief(value)}")
    return value


def as_number(value: object, where: str) -> float:
    """Check that `value` is a finite number, and return it as a float.

    Integers above 2**53 (or below -2**53) are refused, because a float cannot represent all of them.
    """
    huge = isinstance(value, int) and abs(value) > MAGNITUDE
    if isinstance(value, bool) or not isinstance(value, int | float) or huge or not math.isfinite(value):
        raise InputError(where, f"must be a finite number, got {_brief(value)}")
    return float(value)


def as_amount(value: object, where: str) -> float:
    """Check that `value` is a finite number of at least 0, and return it as a float."""
    number = as_number(value, where)
    if number < 0:
        raise InputError(where, f"must not be negative, got {number:g}")
    return number


def as_integer(value: object, where: str, least: int = -MAGNITUDE) -> int:
    """Check that `value` is an integer of at least `least`, and return it.  Booleans and 4.0 are not integers."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(where, f"must be an integer, got {_brief(value)}")
    if abs(value) > MAGNITUDE:
        raise InputError(where, "must be at most 2^53 in magnitude")
    if value < least:
        raise InputError(where, f"must be at least {least}, got {value}")
    return value


def parse(data: bytes, name: str) -> Fields:
    """Parse a JSON document that is an object.  Errors begin with `name`.

    Raises InputError if the document is too large, not UTF-8, empty, not JSON or nested too deep, or if it contains
    repeated keys, NaN or infinity.
    """
    if len(data) > LARGEST_FILE:
        raise InputError(name, f"has {len(data):,} bytes, more than the limit of {LARGEST_FILE:,}")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(name, f"is not text in UTF-8 (byte {error.start}); is it a binary file?") from None
    if not text.strip():
        raise InputError(name, "is empty")
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        what = error.msg.removesuffix(" starting at")
        raise InputError(name, f"is not JSON: {what} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise InputError(name, "is nested too deep to be read") from None
    except InputError as error:
        raise error.within(name) from None
    except ValueError:
        raise InputError(name, "holds a number with too many digits") from None
    if not isinstance(value, dict):
        raise InputError(name, f"must be a JSON object, got {_brief(value)}")
    return Fields(value, "")


def read_with(reader: Callable[[Fields], T], data: bytes, name: str) -> T:
    """Parse a document and read it with `reader`.  Raises InputError with `name`, the place and the reason."""
    fields = parse(data, name)
    try:
        return reader(fields)
    except InputError as error:
        raise error.within(name) from None


def read_inside(reader: Callable[[Fields], T], fields: Fields) -> T:
    """Read a document inside another one with `reader`. Errors begin with its path in the outer document."""
    try:
        return reader(fields)
    except InputError as error:
        raise error if error.where.startswith(fields.where) else error.within(fields.where) from None


def header(fields: Fields, wanted: str) -> None:
    """Raise InputError unless the document has the format `wanted` and version 1."""
    actual = fields.text("format")
    if actual != wanted:
        raise InputError("format", f"must be {wanted!r}, got {_brief(actual)}")
    version = fields.integer("version")
    if version != 1:
        raise InputError("version", f"{wanted} version {version} is not known, this program reads version 1")


def document_text(document: dict[str, object]) -> str:
    """Return the JSON text of a document, with one line per key and per entry of a list."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value:
            rows = ",\n".join(f"  {_encoded(row)}" for row in value)
            lines.append(f' "{key}": [\n{rows}\n ]')
        else:
            lines.append(f" {_encoded(key)}: {_encoded(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def fingerprint(document: dict[str, object]) -> str:
    """Return the SHA-256 of a document's canonical JSON: sorted keys, no spaces, UTF-8."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    values: dict[str, object] = {}
    for key, value in pairs:
        if key in values:
            raise InputError("JSON", f"key {_brief(key)} is repeated in one object")
        values[key] = value
    return values


def _refuse_constant(name: str) -> NoReturn:
    raise InputError("JSON", f"{name} is not allowed")


def _brief(value: object) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) > MAGNITUDE:
        return "a huge integer"
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."

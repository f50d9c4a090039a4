"""Untrusted JSON, read one checked field at a time; errors name the path to the value."""

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
"""Bytes; a schedule of a million runs still fits."""
LARGEST_ONNX = 2**31 - 1
"""Bytes: protobuf's own limit of a message."""


def looks_like_onnx(data: bytes) -> bool:
    """True for bytes that begin as an ONNX model does, with the tag of its `ir_version`, and no text can."""
    return data[:1] == b"\x08"


def looks_like_config(data: bytes) -> bool:
    """True for a JSON object with a model type, as the config.json of a Hugging Face model, and no format of ours."""
    head = data[:4096].lstrip(b"\xef\xbb\xbf \t\r\n")
    return head[:1] == b"{" and b'"model_type"' in data[:1_000_000] and b'"format"' not in head[:200]


_HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")
_encoded = json.JSONEncoder(ensure_ascii=False).encode


class Fields:
    """One JSON object, and where it stands in its document."""

    def __init__(self, value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise InputError(where, f"must be an object, got {_brief(value)}")
        self._values: dict[str, object] = value
        self.where = where

    def only(self, *known: str) -> None:
        """Refuse keys that the format does not have."""
        for key in self._values:
            if key not in known:
                raise InputError(self.where or "the file", f"unknown key {_brief(key)}, known are {', '.join(known)}")

    def has(self, key: str) -> bool:
        return key in self._values

    def named(self) -> Iterator[str]:
        """The keys of an object whose keys are names; each must be text that a file can keep."""
        return (as_text(key, self.where or "the file") for key in self._values)

    def place(self, key: str) -> str:
        """Where the value under `key` stands, for messages; before all keys for none."""
        return f"{self.where}.{key}" if self.where else key

    def get(self, key: str, default: object) -> object:
        """The raw value, or `default` where the key is absent."""
        return self._values.get(key, default)

    def take(self, key: str) -> object:
        """The raw value; an absent key is an error."""
        if key not in self._values:
            raise InputError(self.where or "the file", f"{key!r} is missing")
        return self._values[key]

    def fields(self, key: str) -> Fields:
        return Fields(self.take(key), self.place(key))

    def items(self, key: str) -> Iterator[tuple[object, str]]:
        """The entries of a list, each with its place."""
        return as_items(self.take(key), self.place(key))

    def objects(self, key: str) -> Iterator[Fields]:
        return (Fields(entry, place) for entry, place in self.items(key))

    def text(self, key: str, default: str | None = None) -> str:
        """Text that a file can keep; an absent key is `default` where there is one."""
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
        """A finite number of at least 0, or None where the key is absent or null."""
        return None if self.is_null(key) else as_amount(self.take(key), self.place(key))

    def others(self, *known: str) -> dict[str, object]:
        """The raw values of all other keys."""
        return {key: value for key, value in self._values.items() if key not in known}

    def is_null(self, key: str) -> bool:
        """True where the key is absent or null."""
        return self._values.get(key) is None


def as_items(value: object, where: str) -> Iterator[tuple[object, str]]:
    """The entries of `value` as a list, each with its place."""
    if not isinstance(value, list):
        raise InputError(where, f"must be a list, got {_brief(value)}")
    return ((entry, f"{where}[{i}]") for i, entry in enumerate(value))


def as_text(value: object, where: str) -> str:
    """`value` as text that a file can keep."""
    if not isinstance(value, str):
        raise InputError(where, f"must be text, got {_brief(value)}")
    if not value.isascii() and _HALF_A_CHARACTER.search(value):
        raise InputError(where, f"holds half a character, which no file can keep: {_brief(value)}")
    return value


def as_truth(value: object, where: str) -> bool:
    """`value` as true or false."""
    if not isinstance(value, bool):
        raise InputError(where, f"must be true or false, got {_brief(value)}")
    return value


def as_number(value: object, where: str) -> float:
    """`value` as a finite number; an integer beyond 2^53 is none, since it could not be kept as it is."""
    huge = isinstance(value, int) and abs(value) > MAGNITUDE
    if isinstance(value, bool) or not isinstance(value, int | float) or huge or not math.isfinite(value):
        raise InputError(where, f"must be a finite number, got {_brief(value)}")
    return float(value)


def as_amount(value: object, where: str) -> float:
    """`value` as a finite number of at least 0."""
    number = as_number(value, where)
    if number < 0:
        raise InputError(where, f"must not be negative, got {number:g}")
    return number


def as_integer(value: object, where: str, least: int = -MAGNITUDE) -> int:
    """`value` as an integer; booleans and 4.0 are not integers."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InputError(where, f"must be an integer, got {_brief(value)}")
    if abs(value) > MAGNITUDE:
        raise InputError(where, "must be at most 2^53 in magnitude")
    if value < least:
        raise InputError(where, f"must be at least {least}, got {value}")
    return value


def parse(data: bytes, name: str) -> Fields:
    """Parse a JSON document that is an object; `name` says whose document it is in every complaint about the whole.

    Raises InputError for what is too large, not UTF-8, empty, not JSON or nested too deep, repeated keys, and NaN.
    """
    if len(data) > LARGEST_FILE:
        raise InputError(name, f"has {len(data):,} bytes, more than the {LARGEST_FILE:,} that are read")
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
    """Read a document with `reader`; every complaint begins with `name`.

    Raises InputError with the place and the reason, `name` first.
    """
    fields = parse(data, name)
    try:
        return reader(fields)
    except InputError as error:
        raise error.within(name) from None


def read_inside(reader: Callable[[Fields], T], fields: Fields) -> T:
    """Read a document inside another one with `reader`; every complaint begins with its place there."""
    try:
        return reader(fields)
    except InputError as error:
        raise error if error.where.startswith(fields.where) else error.within(fields.where) from None


def header(fields: Fields, wanted: str) -> None:
    """Check `format` and `version` of a tessel-* document."""
    found = fields.text("format")
    if found != wanted:
        raise InputError("format", f"must be {wanted!r}, got {_brief(found)}")
    version = fields.integer("version")
    if version != 1:
        raise InputError("version", f"{wanted} version {version} is not known, this program reads version 1")


def document_text(document: dict[str, object]) -> str:
    """The text of a file: a key a line, and of its lists an entry a line."""
    lines = []
    for key, value in document.items():
        if isinstance(value, list) and value:
            rows = ",\n".join(f"  {_encoded(row)}" for row in value)
            lines.append(f' "{key}": [\n{rows}\n ]')
        else:
            lines.append(f" {_encoded(key)}: {_encoded(value)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def fingerprint(document: dict[str, object]) -> str:
    """SHA-256 of a document's canonical JSON: keys sorted, no spaces, UTF-8."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise InputError("JSON", f"key {_brief(key)} is repeated in one object")
        found[key] = value
    return found


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

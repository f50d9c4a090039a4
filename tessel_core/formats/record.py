"""Conversion of frozen dataclasses from and to JSON objects, derived from the types of their fields.

Text, booleans, integers, finite numbers, text enumerations, dataclasses, tuples and `X | None` need no declaration.
Other fields declare a `Codec`, either in the annotation (`Annotated[X, Codec(read, write)]`) or in the `Record` of
their class. A field with a default may be missing in a file. So files that are older than the field can still be read.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from operator import attrgetter
from typing import Annotated, Any, Generic, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from tessel_core.errors import InputError
from tessel_core.formats.fields import (
    Fields,
    as_amount,
    as_integer,
    as_items,
    as_number,
    as_text,
    as_truth,
    header,
    read_inside,
)
from tessel_core.options import changed_options, config_from

T = TypeVar("T")

Options = Mapping[str, bool | int | float | str]
"""Options by name.  The file format does not check names and values."""

_REQUIRED, _CLASS_DEFAULT, _ABSENT = object(), object(), object()


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Codec:
    """Conversion of a value from and to JSON.

    `read` takes the parsed JSON and its place in the file, and raises InputError.  `write` returns JSON.
    """

    read: Callable[[Any, str], Any]
    write: Callable[[Any], Any] = _unchanged
    key: str = ""
    """Key of the field in the file; empty if it is the field's name."""
    absent: Any = _CLASS_DEFAULT
    """Value for a missing key.  By default the field's default; without one, the key is required."""
    is_sparse: bool = False
    """Whether the key is left out if the value is None or empty."""

    def under(self, key: str) -> Codec:
        """Return this codec with another key than the field's name."""
        return replace(self, key=key)

    def unless_absent(self, value: object) -> Codec:
        """Return this codec. If the key is missing, reading it gives `value`."""
        return replace(self, absent=value)

    def sparse(self) -> Codec:
        """Return this codec, which then leaves out the key if the value is None or empty."""
        return replace(self, is_sparse=True)

    def required(self) -> Codec:
        """Return this codec with a required key. A default of the class is ignored."""
        return replace(self, absent=_REQUIRED)


class Record(Generic[T]):
    """Conversion of instances of a dataclass from and to JSON objects.

    Parameters
    ----------
    cls
        The dataclass.
    order
        Fields that are written first.  The others follow in the order of the class.
    format
        Name of the format if the object is a document of its own.
    without
        Fields that are not in the file.
    inline
        Records of fields whose keys are written directly into this object.
    codecs
        Codecs of fields whose type does not determine one.
    """

    def __init__(
        self,
        cls: type[T],
        *order: str,
        format: str = "",
        without: tuple[str, ...] = (),
        inline: Mapping[str, Record[Any]] = types.MappingProxyType({}),
        **codecs: Codec | Record[Any],
    ) -> None:
        self._cls, self._format, self._inline = cls, format, inline
        defined = {each.name: each for each in dataclasses.fields(cast(Any, cls)) if each.init}
        hints = get_type_hints(cls, include_extras=True)
        self._entries = {
            name: _complete(defined[name], codecs.get(name) or codec_of(hints[name]))
            for name in dict.fromkeys((*order, *defined))
            if name not in without and name not in inline
        }
        inner = (key for record in inline.values() for key in record._keys)
        header = ("format", "version") if format else ()
        self._keys: tuple[str, ...] = (*header, *(each.key for each in self._entries.values()), *inner)

    def read(self, value: object, where: str = "") -> T:
        """Build an instance from parsed JSON at the place `where`.  Raises InputError like `from_fields`."""
        return self.from_fields(Fields(value, where))

    def from_fields(self, fields: Fields, *beside: str, **given: object) -> T:
        """Build an instance from a JSON object.

        The object may also have the keys in `beside`. `given` has values of fields that are not in the object.

        Raises InputError with the place and the reason for an unknown or missing key, or a wrong value.
        """

        def read(fields: Fields) -> T:
            if self._format:
                header(fields, self._format)
            fields.only(*self._keys, *beside)
            return self._read(fields, given)

        return read_inside(read, fields)

    def _read(self, fields: Fields, given: Mapping[str, object]) -> T:
        values, inside = dict(given), fields.place("")
        for name, codec in self._entries.items():
            value = fields.get(codec.key, _ABSENT)
            if value is not _ABSENT:
                values[name] = codec.read(value, inside + codec.key)
            elif codec.absent is _REQUIRED:
                fields.take(codec.key)
            elif codec.absent is not _CLASS_DEFAULT:
                values[name] = codec.absent
        for name, record in self._inline.items():
            values[name] = record._read(fields, {})
        return self._cls(**values)

    def write(self, value: T) -> dict[str, Any]:
        """Return the instance as a JSON-ready object."""
        document = {"format": self._format, "version": 1} if self._format else dict[str, Any]()
        for name, codec in self._entries.items():
            content = getattr(value, name)
            if content or not codec.is_sparse:
                document[codec.key] = content if codec.write is _unchanged else codec.write(content)
        for name, record in self._inline.items():
            document |= record.write(getattr(value, name))
        return document


def _complete(field: dataclasses.Field[Any], codec: Codec | Record[Any]) -> Codec:
    """Return the codec of a field with its key; the key is required if the field has no default."""
    if isinstance(codec, Record):
        codec = Codec(codec.read, codec.write)
    if codec.absent is _CLASS_DEFAULT and field.default is field.default_factory is dataclasses.MISSING:
        codec = codec.required()
    return codec.under(codec.key or field.name)


# Codecs of single values


def at_least(least: int) -> Codec:
    """Return the codec of an integer of at least `least`."""
    return Codec(partial(as_integer, least=least))


TEXT, COUNT = Codec(as_text), at_least(0)
AMOUNT = Codec(as_amount)
"""A finite number of at least 0."""


def one_of(known: tuple[str, ...]) -> Codec:
    """Return the codec of text that is one of the `known` words."""

    def read(value: object, where: str) -> str:
        text = as_text(value, where)
        if text not in known:
            raise InputError(where, f"must be one of {', '.join(known)}, got {text!r}")
        return text

    return Codec(read)


def named(find: Callable[[str], Any]) -> Codec:
    """Return the codec of a name.  `find` raises InputError for an unknown one."""

    def read(value: object, where: str) -> str:
        name = as_text(value, where)
        try:
            find(name)
        except InputError as error:
            raise InputError(where, error.why) from None
        return name

    return Codec(read)


def or_null(codec: Codec | Record[Any], instead: object = None) -> Codec:
    """Return a codec that also allows null. Null is read as the value `instead`, and None is written as null."""
    read, write = codec.read, codec.write
    return Codec(
        lambda value, where: instead if value is None else read(value, where),
        write if write is _unchanged else lambda value: None if value is None else write(value),
    )


def list_of(codec: Codec | Record[Any], make: Callable[[Iterable[Any]], Any] = tuple) -> Codec:
    """Return the codec of a list.  `make` builds the collection from the values; by default a tuple."""
    return Codec(
        lambda value, where: make(codec.read(*entry) for entry in as_items(value, where)),
        lambda value: [codec.write(entry) for entry in value],
    )


def by_name(codec: Codec, make: Callable[[str, Any], Any] = lambda *pair: pair, *parts: str) -> Codec:
    """Return the codec of a tuple that is written as an object from names to values.

    `make` builds an entry of the tuple from its name and its value. By default the entry is a pair. `parts` gives the
    two attributes of an entry that contain its name and its value.
    """
    name_and_value = attrgetter(*parts) if parts else tuple

    def read(value: object, where: str) -> tuple[Any, ...]:
        fields = Fields(value, where)
        return tuple(make(name, codec.read(fields.take(name), fields.place(name))) for name in fields.named())

    def write(value: tuple[Any, ...]) -> dict[str, Any]:
        return {name: codec.write(each) for name, each in map(name_and_value, value)}

    return Codec(read, write)


def options_of_kind(config: type[Any]) -> Codec:
    """Return the codec of a config, of which only options that differ from their defaults are written."""

    def read(value: object, where: str) -> object:
        options = options_from(value, where)
        try:
            return config_from(config, options)
        except InputError as error:
            raise error.within(where) from None

    return Codec(read, changed_options)


def options_by(find: Callable[[str], type[Any]], key: str) -> Codec:
    """Return the codec of configs by name.

    `find` returns the config class for a name, and raises InputError for an unknown one.
    """

    def read(value: object, where: str) -> Mapping[str, object]:
        fields = Fields(value, where)
        names = [named(find).read(name, where) for name in fields.named()]
        return {name: options_of_kind(find(name)).read(fields.take(name), fields.place(name)) for name in names}

    return Codec(read, lambda configs: {name: changed_options(config) for name, config in configs.items()}, key)


def options_from(value: object, where: str) -> Options:
    """Read options by name; values are text, booleans or finite numbers."""
    fields = Fields(value, where)
    return {name: _option(fields.take(name), fields.place(name)) for name in fields.named()}


def _option(value: object, where: str) -> bool | int | float | str:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return as_text(value, where)
    number = as_number(value, where)
    return value if isinstance(value, int) else number


_PLAIN: Mapping[object, Codec] = {str: TEXT, bool: Codec(as_truth), int: Codec(as_integer), float: Codec(as_number)}


def codec_of(hint: Any) -> Codec:
    """Return the codec for a type hint. If the hint has none, return a codec that raises TypeError when it is used."""
    if get_origin(hint) is Annotated:
        return cast(Codec, hint.__metadata__[0])
    if hint in _PLAIN:
        return _PLAIN[hint]
    arguments = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType) and arguments[1:] == (type(None),):
        return or_null(codec_of(arguments[0]))
    if get_origin(hint) is tuple and arguments[1:] == (...,):
        return list_of(codec_of(arguments[0]))
    return _of_class(hint)


def _of_class(hint: Any) -> Codec:
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        member = one_of(tuple(hint))
        return Codec(lambda value, where: hint(member.read(value, where)), str)
    if dataclasses.is_dataclass(hint):
        record = Record(cast(type[Any], hint))
        return Codec(record.read, record.write)
    return Codec(_refuse, _refuse)


def _refuse(*value: object) -> object:
    raise TypeError(f"no codec is declared for {value[0]!r}")

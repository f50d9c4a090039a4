"""Frozen dataclasses as JSON objects: a field is declared once, and reading and writing follow from its type.

Text, truth values, integers, finite numbers, enumerations of text, dataclasses, tuples and `X | None` speak for
themselves.  Other fields name their `Codec`, in the annotation (`Annotated[X, Codec(read, write)]`) or in the `Record`
of a class that knows no files.  A field with a default may be absent, so files written before it existed still open.
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
"""Options by name; which names and values there are is not the file's business."""

_REQUIRED, _AS_CLASS, _NOTHING = object(), object(), object()


def _as_it_is(value: Any) -> Any:
    return value


@dataclass(frozen=True, slots=True)
class Codec:
    """How a value is kept: read from parsed JSON and its place there, with InputError, and written as JSON."""

    read: Callable[[Any, str], Any]
    write: Callable[[Any], Any] = _as_it_is
    key: str = ""
    """The field's key in the file; empty where that is its name."""
    absent: Any = _AS_CLASS
    """The value where the key is absent; if not said, the class's default, without which the key is required."""
    is_sparse: bool = False
    """Whether the key is left out where the value is None or empty."""

    def under(self, key: str) -> Codec:
        """The same under another key than the field's name."""
        return replace(self, key=key)

    def unless_absent(self, value: object) -> Codec:
        """The same, with `value` where the key is absent."""
        return replace(self, absent=value)

    def sparse(self) -> Codec:
        """The same, written only where there is something to write."""
        return replace(self, is_sparse=True)

    def required(self) -> Codec:
        """The same, refusing an object without the key, whatever the class's default."""
        return replace(self, absent=_REQUIRED)


class Record(Generic[T]):
    """How the instances of a dataclass are kept as JSON objects.

    Parameters
    ----------
    cls
        The dataclass.
    order
        Fields that are written before the others; those come in the order of the class.
    format
        What a document of its own says that it is.
    without
        Fields that the file does not have.
    inline
        Fields whose own keys stand among those of the object, with their records.
    codecs
        Of fields whose type does not say how they are kept.
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
        """An instance from parsed JSON at a place; raises as `from_fields`."""
        return self.from_fields(Fields(value, where))

    def from_fields(self, fields: Fields, *beside: str, **given: object) -> T:
        """An instance from a JSON object, which may have the keys `beside` as well, and fields `given` from elsewhere.

        Raises InputError with the place and the reason: for an unknown or missing key, and for a value that its field
        cannot have.
        """

        def read(fields: Fields) -> T:
            if self._format:
                header(fields, self._format)
            fields.only(*self._keys, *beside)
            return self._read(fields, given)

        return read_inside(read, fields)

    def _read(self, fields: Fields, given: Mapping[str, object]) -> T:
        found, inside = dict(given), fields.place("")
        for name, each in self._entries.items():
            value = fields.get(each.key, _NOTHING)
            if value is not _NOTHING:
                found[name] = each.read(value, inside + each.key)
            elif each.absent is _REQUIRED:
                fields.take(each.key)
            elif each.absent is not _AS_CLASS:
                found[name] = each.absent
        for name, record in self._inline.items():
            found[name] = record._read(fields, {})
        return self._cls(**found)

    def write(self, value: T) -> dict[str, Any]:
        """The instance as a JSON-ready object."""
        found = {"format": self._format, "version": 1} if self._format else dict[str, Any]()
        for name, each in self._entries.items():
            kept = getattr(value, name)
            if kept or not each.is_sparse:
                found[each.key] = kept if each.write is _as_it_is else each.write(kept)
        for name, record in self._inline.items():
            found |= record.write(getattr(value, name))
        return found


def _complete(field: dataclasses.Field[Any], codec: Codec | Record[Any]) -> Codec:
    """The codec of a field, with its key and whether it may be absent."""
    if isinstance(codec, Record):
        codec = Codec(codec.read, codec.write)
    if codec.absent is _AS_CLASS and field.default is field.default_factory is dataclasses.MISSING:
        codec = codec.required()
    return codec.under(codec.key or field.name)


# How single values are kept


def at_least(least: int) -> Codec:
    """An integer of at least `least`."""
    return Codec(partial(as_integer, least=least))


TEXT, COUNT = Codec(as_text), at_least(0)
AMOUNT = Codec(as_amount)
"""A finite number of at least 0."""


def one_of(known: tuple[str, ...]) -> Codec:
    """One of these words."""

    def read(value: object, where: str) -> str:
        text = as_text(value, where)
        if text not in known:
            raise InputError(where, f"must be one of {', '.join(known)}, got {text!r}")
        return text

    return Codec(read)


def named(find: Callable[[str], Any]) -> Codec:
    """The name of something that `find` finds, or complains about."""

    def read(value: object, where: str) -> str:
        name = as_text(value, where)
        try:
            find(name)
        except InputError as error:
            raise InputError(where, error.why) from None
        return name

    return Codec(read)


def or_null(codec: Codec | Record[Any], instead: object = None) -> Codec:
    """The same, or null for `instead`; None is written as null."""
    read, write = codec.read, codec.write
    return Codec(
        lambda value, where: instead if value is None else read(value, where),
        write if write is _as_it_is else lambda value: None if value is None else write(value),
    )


def list_of(codec: Codec | Record[Any], make: Callable[[Iterable[Any]], Any] = tuple) -> Codec:
    """A list of such values, as a tuple or what else `make` makes of them."""
    return Codec(
        lambda value, where: make(codec.read(*entry) for entry in as_items(value, where)),
        lambda value: [codec.write(entry) for entry in value],
    )


def by_name(codec: Codec, make: Callable[[str, Any], Any] = lambda *pair: pair, *parts: str) -> Codec:
    """An object whose keys are names, as a tuple of what `make` makes of name and value, which are its two `parts`."""
    name_and_value = attrgetter(*parts) if parts else tuple

    def read(value: object, where: str) -> tuple[Any, ...]:
        fields = Fields(value, where)
        return tuple(make(name, codec.read(fields.take(name), fields.place(name))) for name in fields.named())

    def write(value: tuple[Any, ...]) -> dict[str, Any]:
        return {name: codec.write(each) for name, each in map(name_and_value, value)}

    return Codec(read, write)


def options_of_kind(config: type[Any]) -> Codec:
    """A config, of which those options are written that are not as usual."""

    def read(value: object, where: str) -> object:
        options = options_from(value, where)
        try:
            return config_from(config, options)
        except InputError as error:
            raise error.within(where) from None

    return Codec(read, changed_options)


def options_by(find: Callable[[str], type[Any]], key: str) -> Codec:
    """Configs by the name of what they are for, which `find` finds the kind of, or complains about."""

    def read(value: object, where: str) -> Mapping[str, object]:
        fields = Fields(value, where)
        names = [named(find).read(name, where) for name in fields.named()]
        return {name: options_of_kind(find(name)).read(fields.take(name), fields.place(name)) for name in names}

    return Codec(read, lambda configs: {name: changed_options(config) for name, config in configs.items()}, key)


def options_from(value: object, where: str) -> Options:
    """Options by name: text, truth values and finite numbers."""
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
    """The codec that follows from a type; one that raises TypeError when used, where none follows."""
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
    raise TypeError(f"how {value[0]!r} is kept is not declared")

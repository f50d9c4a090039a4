"""Frozen dataclasses as JSON objects: a field is declared once, and how it is read and written follows from its type.

Text, truth values, integers, finite numbers, enumerations of text, dataclasses, tuples and `X | None` speak for
themselves.  Anything else says how it is kept: `Annotated[X, Codec(read, write)]`.  A field with a default may be
absent, so files from before there was such a field still open.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_amount, as_integer, as_items, as_number, as_text, as_truth
from tessel_core.options import changed_options, config_from

T = TypeVar("T")

Options = Mapping[str, bool | int | float | str]
"""Options by name; which names and values there are is not the file's business."""


@dataclass(frozen=True, slots=True)
class Codec:
    """How a value is kept: read from parsed JSON and its place there, with InputError, and written as JSON."""

    read: Callable[[Any, str], Any]
    write: Callable[[Any], Any] = lambda value: value
    key: str = ""
    """Under which the field stands in the file, where that is not its name."""


def record_from(cls: type[T], fields: Fields, **given: object) -> T:
    """An instance of a dataclass from a JSON object; fields that are `given` do not stand in it.

    Raises
    ------
    InputError
        With the place and the reason: for an unknown or missing key, and for a value that its field cannot have.
    """
    declared = {name: each for name, each in _declared(cast(Hashable, cls)).items() if name not in given}
    fields.only(*(each.key for each in declared.values()))
    found = {
        name: each.codec.read(fields.take(each.key), fields.place(each.key))
        for name, each in declared.items()
        if each.required or fields.has(each.key)
    }
    try:
        return cls(**given, **found)
    except InputError as error:
        raise error.within(fields.where) if fields.where else error from None


def record_document(value: object, *without: str) -> dict[str, object]:
    """A dataclass as a JSON object, the fields in `without` left out."""
    declared = _declared(cast(Hashable, type(value))).items()
    return {each.key: each.codec.write(getattr(value, name)) for name, each in declared if name not in without}


def at_least(least: int) -> Codec:
    """An integer of at least `least`."""
    return Codec(lambda value, where: as_integer(value, where, least))


AMOUNT = Codec(as_amount)
"""A finite number of at least 0."""


def one_of(known: tuple[str, ...]) -> Codec:
    """One of these words."""

    def read(value: object, where: str) -> str:
        if value not in known:
            raise InputError(where, f"must be one of {', '.join(known)}, got {as_text(value, where)!r}")
        return str(value)

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


def options_of_kind(config: type[Any]) -> Codec:
    """A config, of which those options are written that are not as usual."""

    def read(value: object, where: str) -> object:
        options = options_from(Fields(value, where))
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


def options_from(fields: Fields) -> Options:
    """Options by name: text, truth values and finite numbers."""
    return {name: _option(fields.take(name), fields.place(name)) for name in fields.named()}


def _option(value: object, where: str) -> bool | int | float | str:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return as_text(value, where)
    number = as_number(value, where)
    return value if isinstance(value, int) else number


@dataclass(frozen=True, slots=True)
class _Declared:
    """A field of a dataclass, as a file knows it."""

    key: str
    codec: Codec
    required: bool


@cache
def _declared(cls: Hashable) -> Mapping[str, _Declared]:
    kind = cast(type[Any], cls)
    hints, found = get_type_hints(kind, include_extras=True), {}
    for field in dataclasses.fields(kind):
        codec = _codec(hints[field.name])
        absent = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        found[field.name] = _Declared(codec.key or field.name, codec, absent)
    return found


_PLAIN: Mapping[object, Codec] = {
    str: Codec(as_text),
    bool: Codec(as_truth),
    int: Codec(as_integer),
    float: Codec(as_number),
}


def _codec(hint: Any) -> Codec:
    """What a type says of how it is kept; what cannot be kept is left to whoever gives it."""
    if get_origin(hint) is Annotated:
        return cast(Codec, hint.__metadata__[0])
    if hint in _PLAIN:
        return _PLAIN[hint]
    arguments = get_args(hint)
    if get_origin(hint) in (Union, types.UnionType) and arguments[1:] == (type(None),):
        return or_null(_codec(arguments[0]))
    if get_origin(hint) is tuple and arguments[1:] == (...,):
        return list_of(_codec(arguments[0]))
    return _of_class(hint)


def _of_class(kind: Any) -> Codec:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        words = one_of(tuple(kind))
        return Codec(lambda value, where: kind(words.read(value, where)), str)
    if dataclasses.is_dataclass(kind):
        return Codec(lambda value, where: record_from(cast(type[Any], kind), Fields(value, where)), record_document)
    return Codec(_refuse, _refuse)


def or_null(codec: Codec) -> Codec:
    """The same, or null."""
    return Codec(
        lambda value, where: None if value is None else codec.read(value, where),
        lambda value: None if value is None else codec.write(value),
    )


def list_of(codec: Codec) -> Codec:
    """A list of such values."""
    return Codec(
        lambda value, where: tuple(codec.read(*entry) for entry in as_items(value, where)),
        lambda value: [codec.write(entry) for entry in value],
    )


def _refuse(*value: object) -> object:
    raise TypeError(f"how {value[0]!r} is kept is not declared")

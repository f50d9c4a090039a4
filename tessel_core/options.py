"""Solver options: a config's fields say how they are shown, and forms, command lines and records follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar, cast

from tessel_core.errors import InputError
from tessel_core.hosting import COSTLY_OPTIONS, hosted

Config = TypeVar("Config")


@dataclass(frozen=True, slots=True)
class Option:
    """How one field of a config is asked for: a number from `low` to `high`, both included, or one of `choices`."""

    label: str
    help: str
    low: float = 0.0
    high: float = 0.0
    unit: str = ""
    choices: tuple[str, ...] = ()
    numbers: bool = False
    """Whether a whole number from `low` to `high` does as well as one of the choices."""
    selects: bool = False
    """Whether it only selects from what one search finds: answers to configs that differ in it alone are the same."""
    key: str = ""
    """Its name in files, addresses and the digests of questions; empty where that is the name of its field.  A field
    that is renamed keeps its former name here, or what was saved is not found again."""


def option(default: Any, option: Option) -> Any:
    """A dataclass field that carries its `Option`."""
    return field(default=default, metadata={"option": option})


def options_of(config: object) -> dict[str, tuple[Option, Any]]:
    """Per field of a config (class or instance), its `Option` and its default or value."""
    found = {}
    for each in fields(cast(Any, config)):
        if "option" not in each.metadata:
            raise InputError(each.name, "is a field without an `option`")
        value = each.default if isinstance(config, type) else getattr(config, each.name)
        shown = cast(Option, each.metadata["option"])
        if each.name in COSTLY_OPTIONS and hosted():
            shown = replace(shown, high=cast(float, each.default))
        found[each.name] = (shown, value)
    return found


class OptionError(InputError):
    """A `field` of a config is out of range; it is named by its label, as forms show it."""

    def __init__(self, field: str, label: str, why: str) -> None:
        super().__init__(label, why)
        self.field = field

    def __reduce__(self) -> tuple[type[InputError], tuple[str, ...]]:
        """From another process it comes back whole."""
        return OptionError, (self.field, self.where, self.why)


def check_options(config: object) -> None:
    """Raise OptionError where a field of a config lies outside its range or has another type than its default."""
    defaults = options_of(type(config))
    for name, (shown, value) in options_of(config).items():
        wanted = type(defaults[name][1])
        if shown.numbers and isinstance(value, int):
            wanted = int
        kinds = (int, float) if wanted is float else wanted
        if isinstance(value, bool) != (wanted is bool) or not isinstance(value, kinds):
            raise OptionError(name, shown.label, f"must be of type {wanted.__name__}, got {value!r}")
        if shown.choices and wanted is not int:
            if value not in shown.choices:
                numbers = f" or a number from {_plain(shown.low)} to {_plain(shown.high)}" if shown.numbers else ""
                why = f"must be one of {', '.join(shown.choices)}{numbers}, got {value!r}"
                raise OptionError(name, shown.label, why)
        elif not shown.low <= value <= shown.high:
            why = f"must be between {_plain(shown.low)} and {_plain(shown.high)}, got {value}"
            raise OptionError(name, shown.label, why)


def _plain(limit: float) -> str:
    return str(int(limit)) if limit == int(limit) else str(limit)


def option_keys(config: object) -> tuple[str, ...]:
    """The names of a config's options in files and addresses."""
    return tuple(shown.key or name for name, (shown, _) in options_of(config).items())


def search_options(config: object) -> dict[str, Any]:
    """The options that the search depends on, by key: all but those that select from what it finds."""
    return {shown.key or name: value for name, (shown, value) in options_of(config).items() if not shown.selects}


def without_selection(config: Config) -> Config:
    """The config of the same search whose options that only select have their defaults."""
    usual = {name: value for name, (shown, value) in options_of(type(config)).items() if shown.selects}
    return cast(Config, replace(cast(Any, config), **usual))


def changed_options(config: object) -> dict[str, Any]:
    """The options whose values are not their defaults, by key."""
    defaults, found = options_of(type(config)), options_of(config)
    return {shown.key or name: value for name, (shown, value) in found.items() if value != defaults[name][1]}


def with_config(configs: Mapping[str, Any], name: str, config: object) -> dict[str, Any]:
    """Configs by name with another one, which is only kept where it is not as usual."""
    others = {other: each for other, each in configs.items() if other != name}
    return {**others, name: config} if changed_options(config) else others


def config_having(config: type[Any], values: Mapping[str, object]) -> Any:
    """A config with those of the values, by field, that it has a field for; the others as they are."""
    known = {each.name for each in fields(config)}
    return config(**{name: value for name, value in values.items() if name in known})


def config_from(config: type[Config], values: Mapping[str, object]) -> Config:
    """A config from values by key, as a file gives them; options that are not named keep defaults.

    Raises InputError for an unknown option, and for a value of the wrong type or out of range.
    """
    keys, wanted = option_keys(config), dict[str, Any]()
    for key in values:
        if key not in keys:
            raise InputError(key, f"is no option here, known are {', '.join(keys) or 'none'}")
    for key, (name, (shown, default)) in zip(keys, options_of(config).items(), strict=True):
        if key in values:
            wanted[name] = _as_kept(values[key], int if shown.numbers else type(default))
    found = config(**wanted)
    check_options(found)
    return found


def _as_kept(value: object, wanted: type) -> object:
    """A number from its text, and 5 for 5.0; whatever cannot be converted is left to the check that follows."""
    if wanted is bool and isinstance(value, str):
        return {"true": True, "false": False}.get(value, value)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        try:
            return wanted(value)
        except ValueError:
            return value
    return value

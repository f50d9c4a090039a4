"""Solver options.  Fields of a config carry an `Option`, from which forms, command lines and records are built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar, cast

from tessel_core.errors import InputError
from tessel_core.hosting import COSTLY_OPTIONS, hosted

Config = TypeVar("Config")


@dataclass(frozen=True, slots=True)
class Option:
    """Description of one config field: a number from `low` to `high` (inclusive), or one of `choices`."""

    label: str
    help: str
    low: float = 0.0
    high: float = 0.0
    unit: str = ""
    choices: tuple[str, ...] = ()
    numbers: bool = False
    """Whether a whole number from `low` to `high` is also allowed besides the choices."""
    selects: bool = False
    """Whether the option only selects from the results of one search, without changing the search itself."""
    key: str = ""
    """Name of the option in files, in web addresses and in the keys of saved results.

    Empty if it is the name of the field. A renamed field keeps its former name here, so that saved results are still
    found.
    """


def option(default: Any, option: Option) -> Any:
    """Return a dataclass field with a default and its `Option`."""
    return field(default=default, metadata={"option": option})


def options_of(config: object) -> dict[str, tuple[Option, Any]]:
    """Return the `Option` and the default (of a class) or value (of an instance) for each field of `config`."""
    options = {}
    for each in fields(cast(Any, config)):
        if "option" not in each.metadata:
            raise InputError(each.name, "is a field without an `option`")
        value = each.default if isinstance(config, type) else getattr(config, each.name)
        shown = cast(Option, each.metadata["option"])
        if each.name in COSTLY_OPTIONS and hosted():
            shown = replace(shown, high=cast(float, each.default))
        options[each.name] = (shown, value)
    return options


class OptionError(InputError):
    """The value of a config's `field` is out of range.  The message names the field by its label in forms."""

    def __init__(self, field: str, label: str, why: str) -> None:
        super().__init__(label, why)
        self.field = field

    def __reduce__(self) -> tuple[type[InputError], tuple[str, ...]]:
        """Pickle all arguments, so that the error can pass between processes."""
        return OptionError, (self.field, self.where, self.why)


def check_options(config: object) -> None:
    """Raise OptionError if a field of `config` is out of range or has another type than its default."""
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
    """Return the keys of a config's options in files and addresses."""
    return tuple(shown.key or name for name, (shown, _) in options_of(config).items())


def search_options(config: object) -> dict[str, Any]:
    """Return the options that change the search (all without `selects`), by key."""
    return {shown.key or name: value for name, (shown, value) in options_of(config).items() if not shown.selects}


def without_selection(config: Config) -> Config:
    """Return `config` with the default of each option that only selects."""
    defaults = {name: value for name, (shown, value) in options_of(type(config)).items() if shown.selects}
    return cast(Config, replace(cast(Any, config), **defaults))


def changed_options(config: object) -> dict[str, Any]:
    """Return the options whose values differ from their defaults, by key."""
    defaults, options = options_of(type(config)), options_of(config)
    return {shown.key or name: value for name, (shown, value) in options.items() if value != defaults[name][1]}


def with_config(configs: Mapping[str, Any], name: str, config: object) -> dict[str, Any]:
    """Return `configs` with `config` stored under `name`, or without that name if `config` has only defaults."""
    others = {other: each for other, each in configs.items() if other != name}
    return {**others, name: config} if changed_options(config) else others


def config_having(config: type[Any], values: Mapping[str, object]) -> Any:
    """Return a config of the given class from `values` by field name; values without a field are ignored."""
    known = {each.name for each in fields(config)}
    return config(**{name: value for name, value in values.items() if name in known})


def config_from(config: type[Config], values: Mapping[str, object]) -> Config:
    """Build a config from values by key, as a file contains them.  Missing options keep their defaults.

    Raises InputError for an unknown option, and for a value of the wrong type or out of range.
    """
    keys, arguments = option_keys(config), dict[str, Any]()
    for key in values:
        if key not in keys:
            raise InputError(key, f"is no option here, choose from {', '.join(keys) or 'none'}")
    for key, (name, (shown, default)) in zip(keys, options_of(config).items(), strict=True):
        if key in values:
            arguments[name] = _converted(values[key], int if shown.numbers else type(default))
    result = config(**arguments)
    check_options(result)
    return result


def _converted(value: object, wanted: type) -> object:
    """Convert a value to the type of its option: text to a number, or 5 to 5.0.

    Other values are returned unchanged, and `check_options` rejects them.
    """
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

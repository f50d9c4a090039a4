"""Forms that follow a config's fields: label, unit, range and help are said once, in the core."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TypeVar

import streamlit as st

from tessel_core.options import Option, options_of

Config = TypeVar("Config")


def config_form(config: Config, key: str, *, without: Collection[str] = (), columns: int = 1) -> Config:
    """One input a field of `config`, starting from its values; returns the config as the inputs say it."""
    shown = {name: entry for name, entry in options_of(config).items() if name not in without}
    places = st.columns(columns)
    values = {}
    for i, (name, (option, value)) in enumerate(shown.items()):
        with places[i % columns]:
            values[name] = _ask(option, value, f"{key}-{name}")
    return replace(config, **values) if values else config  # type: ignore[type-var]


def _ask(option: Option, value: object, key: str) -> object:
    label = f"{option.label} ({option.unit})" if option.unit else option.label
    if isinstance(value, bool):
        return st.checkbox(label, value, key=key, help=option.help)
    if option.choices:
        return st.selectbox(label, option.choices, option.choices.index(value), key=key, help=option.help)
    if isinstance(value, float):
        step = 1.0 if option.high > 10 else 0.1
        return st.number_input(label, float(option.low), float(option.high), value, step, key=key, help=option.help)
    assert isinstance(value, int), "options are booleans, whole numbers or numbers"
    return st.number_input(label, int(option.low), int(option.high), value, key=key, help=option.help)

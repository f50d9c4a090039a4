"""Widgets that look alike on every page: text, switches, choices, numbers, pictures, files and forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import streamlit as st

from tessel_core.errors import InputError
from tessel_core.options import Option, options_of

Config = TypeVar("Config")
Choice = TypeVar("Choice")

STILL = {"displayModeBar": False}
"""For pictures that nobody zooms."""
MODE_BAR = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}

_STYLE = """
<style>
.st-key-undo-keys { position: absolute; }
/* Streamlit greys the text of plotly figures on light ground; on a projector it must be as dark as the rest. */
.js-plotly-plot :is(.xtick, .ytick, .x2tick, .y2tick) text,
.js-plotly-plot :is(.xtitle, .x2title, .ytitle, .y2title, .legendtext, .annotation-text) {
  fill: currentColor !important;
}
/* The mode bar's ground hides what is under it. */
.js-plotly-plot .modebar-group { background: transparent !important; }
</style>
"""


def look() -> None:
    """The few things about looks that Streamlit's theme cannot say, once a page."""
    st.html(_STYLE)


def literal(text: str) -> str:
    """`text` with everything escaped that Streamlit's Markdown would act on.

    >>> literal("block F_0: *no*")
    'block F\\\\_0\\\\: \\\\*no\\\\*'
    """
    # Icons are put in after Markdown, so nothing but a break in it keeps the name of one.
    text = re.sub(r":(?=[a-z0-9_+-]+[/:])", ":\u2060", text)
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|$<>:~&])", r"\\\1", text)


def file_name(text: str, otherwise: str = "plan") -> str:
    """`text` without what file systems do not like."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or otherwise


def complain(error: InputError | str, icon: str = "error") -> None:
    """Show what is wrong, in one sentence."""
    st.error(literal(f"{error}."), icon=f":material/{icon}:")


def title_of(name: str, facts: str) -> None:
    """The heading of a page: what is open."""
    st.markdown(f"**{literal(name)}** &ensp; :gray[{literal(facts)}]", width="stretch")


def switch(label: str, options: Sequence[str], key: str, now: str = "", **look: Any) -> str:
    """One of a few options, `now` or the first until another one is chosen; never none."""
    chosen: str = st.segmented_control(
        label, options, default=now or options[0], key=key, required=True, label_visibility="collapsed", **look
    )
    return chosen


def choose(label: str, titles: Mapping[Choice, str], now: Choice | None = None, **look: Any) -> Choice:
    """One of many by title: `now` at first, or the first of all."""
    names = list(titles)
    at = names.index(now) if now in titles else 0
    chosen: Choice = st.selectbox(label, names, at, titles.__getitem__, **look)
    return chosen


def metrics(numbers: Sequence[Any]) -> None:
    """Key numbers in one row, or in two where the window is narrow; none is cut off."""
    with st.container(horizontal=True, gap="medium"):
        for number in numbers:
            look: dict[str, Any] = {"delta_color": "off", "delta_arrow": "off", "width": "content"}
            st.metric(number.label, number.value, number.beside or None, help=number.help, **look)


def verdict(text: str, *, proved: bool, found: bool) -> None:
    """The state of an answer in the colour of the news."""
    if proved:
        st.success(literal(text), icon=":material/verified:")
    elif found:
        st.info(literal(text), icon=":material/check:")
    else:
        st.warning(literal(text), icon=":material/error:")


def picture(figure: object, key: str) -> None:
    """A figure without its mode bar."""
    st.plotly_chart(figure, key=key, config=STILL)


def download(
    label: str, data: str | Callable[[], str | bytes], name: str, media_type: str = "application/json", **look: Any
) -> None:
    """A button for a file to take away, which is made when it is asked for where `data` is a function."""
    look.setdefault("icon", ":material/download:")
    st.download_button(label, data, name, media_type, on_click="ignore", **look)


def config_form(config: Config, key: str, *, without: Collection[str] = (), columns: int = 1) -> Config:
    """One input a field of `config`, starting from its values; returns the config as the inputs say it.

    Label, unit, range and help are those of the config's options.
    """
    shown = {name: entry for name, entry in options_of(config).items() if name not in without}
    places = st.columns(columns)
    values = {}
    for i, (name, (option, value)) in enumerate(shown.items()):
        with places[i % columns]:
            values[name] = _ask(option, value, key=f"{key}-{name}", help=option.help)
    return replace(config, **values) if values else config  # type: ignore[type-var]


def _ask(option: Option, value: object, **look: Any) -> object:
    label = f"{option.label} ({option.unit})" if option.unit else option.label
    if isinstance(value, bool):
        return st.checkbox(label, value, **look)
    if option.choices:
        return st.selectbox(label, option.choices, option.choices.index(value), **look)
    if isinstance(value, float):
        step = 1.0 if option.high > 10 else 0.1
        return st.number_input(label, float(option.low), float(option.high), value, step, **look)
    assert isinstance(value, int), "options are booleans, whole numbers or numbers"
    return st.number_input(label, int(option.low), int(option.high), value, **look)


def describe(text: str, source: str) -> None:
    """In a box of fixed height, so that a longer description moves nothing."""
    with st.container(height=84, border=False):
        st.caption(literal(text), help=literal(source))


def choose_sample(label: str, samples: Iterable[Any], first: str) -> str:
    """The name of one of the catalogue's samples, described below."""
    known = {sample.name: sample for sample in samples}
    name = choose(label, {each: known[each].title for each in known}, first, label_visibility="collapsed")
    describe(known[name].description, known[name].provenance)
    return name

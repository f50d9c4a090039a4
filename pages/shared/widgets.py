"""Widgets that look alike on every page: text, switches, choices, numbers, pictures, files and forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.shared.session import session, unbroken
from tessel_core.errors import InputError
from tessel_core.options import Option, options_of

if TYPE_CHECKING:  # pages without numbers do not load them
    from tessel_core.workbench.messages.schedule import KeyNumber

Config = TypeVar("Config")
Choice = TypeVar("Choice")

STILL = {"displayModeBar": False}
"""For pictures that nobody zooms."""
MODE_BAR = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}

_STYLE = """
<style>
:has(> [class*=st-key-unseen-]) { position: absolute; }
/* Streamlit greys the text of plotly figures on light ground; on a projector it must be as dark as the rest. */
.js-plotly-plot :is(.xtick, .ytick, .x2tick, .y2tick) text,
.js-plotly-plot :is(.xtitle, .x2title, .ytitle, .y2title, .legendtext, .annotation-text),
.js-plotly-plot text[style*="rgb(128, 132, 149)"] {
  fill: currentColor !important;
}
.js-plotly-plot tspan[style*="#b34700"] { fill: light-dark(#b34700, #ff8a3d) !important; }
/* The mode bar's ground hides what is under it. */
.js-plotly-plot .modebar-group { background: transparent !important; }
/* Captions and the keys on buttons are drawn at 60 % of the text's colour: too pale to read [WCAG 2.2, 1.4.3]. */
[data-testid=stCaptionContainer] { opacity: 0.78; }
button:enabled kbd { opacity: 1 !important; }
/* What is written on the accent is white on both grounds, and the dark ground's accent is bright. */
[data-testid^=stBaseButton-primary]:enabled, [data-testid=stMultiSelect] [data-tag] {
  color: light-dark(#ffffff, #0d141b) !important;
}
[data-testid^=stBaseButton-primary]:enabled:is(:hover, :focus, :active) {
  background-color: light-dark(#004a75, #6cc0f0) !important;
}
:is([data-testid=stBaseButton-secondary], [data-testid=stBaseButton-tertiary]):enabled:active {
  color: light-dark(#004a75, #6cc0f0) !important;
}
.stApp :is(a, button, label, summary, [tabindex]):focus-visible {
  outline: 2px solid light-dark(#00639c, #3da5e0) !important;
  outline-offset: -2px;
}
/* Parts of a page come late: what is below them stays put. */
[class*=st-key-heading-] { min-height: 2.5rem; }
/* Lines that an eye can follow, and fields no wider than what goes into them, on the widest screens too. */
[data-testid=stMarkdownContainer] > p { max-width: 64rem; }
[class*=st-key-form-] [data-testid=stHorizontalBlock] { max-width: 100rem; }
:is([data-testid=stSelectbox], [data-testid=stTextInput]) { max-width: 46rem; }
[class*=st-key-form-] [data-testid=stSelectbox] { max-width: none; }
/* What is chosen takes a second line where it has no room in one, in place of a cut. */
[data-testid=stMultiSelectTagsContainer] { flex-wrap: wrap; height: auto !important; }
:has(> [data-testid=stMultiSelectTagsContainer]) { height: auto !important; max-height: none !important; }
@media (max-width: 1200px) { [data-testid=stMainBlockContainer] { padding-left: 2rem; padding-right: 2rem; } }
/* Columns that have no room beside each other stand below each other. */
[class*=st-key-fields-] [data-testid=stColumn] { min-width: 9rem; }
/* Why a file was not taken is read without a pointer over it. */
[data-testid=stFileChip][aria-invalid=true] { flex-wrap: wrap; height: auto !important; max-width: none !important; }
[data-testid=stFileChip] > [role=alert] {
  position: static !important; width: 100% !important; height: auto !important; margin: 0 !important;
  clip: auto !important; clip-path: none !important; overflow: visible !important; white-space: normal !important;
  font-size: 0.85rem;
}
[data-testid=stFileUploaderDropzone]:has([aria-invalid=true]) { height: auto !important; }
/* A list of things to open reads from the left. */
[class*=st-key-list-] button :is(div, span) { justify-content: flex-start; text-align: left; }
@media (max-width: 1200px) { [class*=st-key-ways-] [data-testid=stColumn] { min-width: 45%; } }
/* On paper: black on white, the whole of what is shown, and nothing to press. */
@media print {
  @page { margin: 12mm; }
  html, body { background: #fff !important; }
  .stApp, .stApp * { color: #000 !important; background-color: transparent !important; }
  .stApp { background: #fff !important; }
  .stApp * { --st-text-color: #000 !important; --st-background-color: #fff !important; }
  .stApp * { --st-secondary-background-color: #f2f3f5 !important; --st-primary-color: #00639c !important; }
  :is(header, [data-testid=stHeader], [data-testid=stButton], [data-testid=stDownloadButton],
  [data-testid=stPopover], [data-testid=stTooltipIcon], [data-testid=stButtonGroup]) { display: none !important; }
  [data-testid=stColumn]:has([class*=st-key-list-]) { display: none !important; }
  .stApp, :is([data-testid=stAppViewContainer], [data-testid=stMain], [data-testid=stMainBlockContainer]) {
    display: block !important; position: static !important; height: auto !important; min-height: 0 !important;
    overflow: visible !important;
  }
  :is([data-testid=stElementContainer], .stBidiComponent) { overflow: visible !important; height: auto !important; }
  [class*=st-key-unseen-] { display: none !important; }
  [data-testid=stVerticalBlock] { display: block !important; }
  [data-testid=stHorizontalBlock]:has([class*=st-key-list-]) { display: block !important; }
  [data-testid=stVerticalBlock] > * { margin-bottom: 0.6rem; }
  [data-testid=stMainBlockContainer] { padding: 0 !important; max-width: none !important; }
  [data-testid=stMarkdownContainer] :is(p, li) { break-inside: avoid; }
}
</style>
"""

_WORDS = """
<script>
// Where an upload breaks off, Streamlit says so in the words of its HTTP library.
{
const BROKE_OFF = "The upload broke off. Is the server there, with room on its disk?";
window.tesselWords ??= new MutationObserver((changes) => {
  if (!document.querySelector("[data-testid=stFileChip][aria-invalid=true]")) return;
  for (const { target, addedNodes } of changes) {
    for (const each of [target, ...addedNodes]) {
      const texts = document.createTreeWalker(each, NodeFilter.SHOW_TEXT);
      for (let text = texts.currentNode; text; text = texts.nextNode()) {
        if (text.data?.includes("AxiosError")) text.data = BROKE_OFF;
      }
    }
  }
});
window.tesselWords.observe(document.body, { childList: true, subtree: true, characterData: true });
}
</script>
"""


def look() -> None:
    """The few things about looks that Streamlit's theme cannot say, once a page."""
    st.html(_STYLE)  # alone, since Streamlit then gives it no place on the page


def own_words() -> None:
    """Sentences in place of Streamlit's, once a page, below all else."""
    with unseen("words"):
        st.html(_WORDS, unsafe_allow_javascript=True)


def unseen(name: str) -> DeltaGenerator:
    """A place for a script that draws nothing; what is shown until the script is there would push the rest away."""
    return st.container(key=f"unseen-{name}", height=1, width=1, border=False)


def button(label: str, *, key: str | None = None, place: DeltaGenerator | None = None, **given: Any) -> bool:
    """A button as Streamlit's own; True in the run that answers a press.

    Streamlit forgets a press when the browser's next message breaks the run off before it comes by the button, and a
    timeline that has come to rest sends one by itself.  Here a press waits for the next run that reaches the button.
    """
    name = key or label
    (place or st).button(label, key=key, on_click=_press, args=(name,), **given)
    return session().take_press(name)


@unbroken
def _press(name: str) -> None:
    session().pressed[name] += 1


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


def heading_room(name: str, **look: Any) -> DeltaGenerator:
    """Room for a row of buttons that comes late, as high as it will be at least."""
    room = st.container(key=f"heading-{name}", **look)
    room.empty()  # a container with nothing in it would take no room
    return room


def heading_row(name: str) -> DeltaGenerator:
    """The first line of a page: what is open, and what to do with it."""
    look = {"vertical_alignment": "center", "horizontal_alignment": "distribute"}
    return heading_room(name, horizontal=True, **look)


def form(name: str) -> DeltaGenerator:
    """A box of fields, no wider than an eye takes in."""
    return st.container(border=True, key=f"form-{name}")


def labelled(place: DeltaGenerator | None = None, **look: Any) -> DeltaGenerator:
    """A place for one labelled field, as high from the start as the field will be, so that its row moves nothing.

    The field comes in as low as a button, until its script is there; styles come no sooner.
    """
    return (place or st).container(height=64, border=False, **look)


def switch_room(*, left: bool = False, **look: Any) -> DeltaGenerator:
    """A place for a switch, as high from the start as it comes in."""
    side: Literal["left", "right"] = "left" if left else "right"
    return st.container(height=38, border=False, vertical_alignment="center", horizontal_alignment=side, **look)


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
    at = 0 if now is None or now not in titles else names.index(now)
    chosen: Choice = st.selectbox(label, names, at, titles.__getitem__, **look)
    return chosen


_NUMBER = 81
"""Pixels of a number with its label and what stands under it."""


def metrics(numbers: Sequence[KeyNumber]) -> None:
    """Key numbers in one row, or in two where the window is narrow; none is cut off."""
    with st.container(horizontal=True, gap="small"):
        for number in numbers:
            look: dict[str, Any] = {"delta_color": "off", "delta_arrow": "off", "help": number.help}
            beside = literal(number.beside) or None
            st.metric(number.label, number.value, beside, width=number.pixels, height=_NUMBER, **look)


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


def config_form(
    config: Config, key: str, *, without: Collection[str] = (), columns: int = 1, limited: bool = True
) -> Config:
    """One input a field of `config`, starting from its values; returns the config as the inputs say it.

    Label, unit, range and help are those of the config's options.  A limited field turns red and keeps its value where
    a number is out of range; whoever takes the config refuses it in a sentence where fields are not `limited`.
    """
    shown = {name: entry for name, entry in options_of(config).items() if name not in without}
    places = st.container(key=f"fields-{key}").columns(columns)
    values = {}
    for i, (name, (option, value)) in enumerate(shown.items()):
        with places[i % columns]:
            values[name] = _ask(option, value, limited, key=f"{key}-{name}", help=option.help)
    return replace(config, **values) if values else config  # type: ignore[type-var]


def _ask(option: Option, value: object, limited: bool, **look: Any) -> object:
    label = f"{option.label} ({option.unit})" if option.unit else option.label
    if isinstance(value, bool):
        return st.checkbox(label, value, **look)
    if option.numbers:
        return _choice_or_number(label, option, value, **look)
    if option.choices:
        return st.selectbox(label, option.choices, option.choices.index(value), **look)
    kind, step = (float, 1.0 if option.high > 10 else 0.1) if isinstance(value, float) else (int, 1)
    assert isinstance(value, int | float), "options are booleans, whole numbers or numbers"
    low, high = (kind(option.low), kind(option.high)) if limited else (None, None)
    return st.number_input(label, low, high, value, step, **look)


_A_NUMBER = "a number"


def _choice_or_number(label: str, option: Option, value: object, *, key: str, help: str) -> object:
    """One of the choices, or a whole number, which has a field of its own."""
    offered = (*option.choices, _A_NUMBER)
    now = offered.index(value) if value in option.choices else len(option.choices)
    chosen = st.selectbox(label, offered, now, key=key, help=help)
    if chosen != _A_NUMBER:
        return chosen
    first = value if isinstance(value, int) else int(option.low)
    return st.number_input(f"{label}, the number", int(option.low), int(option.high), first, key=f"{key}-number")


def describe(text: str, source: str) -> None:
    """In a box of fixed height, so that a longer description moves nothing."""
    with st.container(height=76, border=False):
        st.caption(literal(text), help=literal(source))

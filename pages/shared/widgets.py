"""Widgets that pages share: text, switches, choices, numbers, pictures, files and forms."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.shared.session import session, unbroken
from tessel_core.errors import InputError
from tessel_core.options import Option, options_of

if TYPE_CHECKING:  # pages without key numbers do not load this
    from tessel_core.workbench.messages.schedule import KeyNumber

Config = TypeVar("Config")
Choice = TypeVar("Choice")

STILL = {"displayModeBar": False}
"""Plotly settings of a figure without zoom."""
MODE_BAR = {"displaylogo": False, "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d"]}

_STYLE = """
<style>
:has(> [class*=st-key-unseen-]) { position: absolute; }
/* Streamlit draws the text of plotly figures grey on a light background, which a projector makes hard to read. */
.js-plotly-plot :is(.xtick, .ytick, .x2tick, .y2tick) text,
.js-plotly-plot :is(.xtitle, .x2title, .ytitle, .y2title, .legendtext, .annotation-text),
.js-plotly-plot text[style*="rgb(128, 132, 149)"] {
  fill: currentColor !important;
}
.js-plotly-plot tspan[style*="#b34700"] { fill: light-dark(#b34700, #ff8a3d) !important; }
/* The background of the mode bar would hide what is below it. */
.js-plotly-plot .modebar-group { background: transparent !important; }
/* Streamlit draws captions and key hints at 60 % opacity, which is too pale [WCAG 2.2, 1.4.3]. */
[data-testid=stCaptionContainer] { opacity: 0.78; }
button:enabled kbd { opacity: 1 !important; }
/* Streamlit writes white on the accent colour in both themes, but the accent of the dark theme is bright. */
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
/* Reserve the height of headings, so that late parts of a page move nothing below them. */
[class*=st-key-heading-] { min-height: 2.5rem; }
/* Limit the width of lines and fields on wide screens. */
[data-testid=stMarkdownContainer] > p { max-width: 64rem; }
[class*=st-key-form-] [data-testid=stHorizontalBlock] { max-width: 100rem; }
:is([data-testid=stSelectbox], [data-testid=stTextInput]) { max-width: 46rem; }
[class*=st-key-form-] [data-testid=stSelectbox] { max-width: none; }
/* Chosen options wrap to a second line instead of being cut off. */
[data-testid=stMultiSelectTagsContainer] { flex-wrap: wrap; height: auto !important; }
:has(> [data-testid=stMultiSelectTagsContainer]) { height: auto !important; max-height: none !important; }
@media (max-width: 1200px) { [data-testid=stMainBlockContainer] { padding-left: 2rem; padding-right: 2rem; } }
/* Columns wrap below each other where they have too little room. */
[class*=st-key-fields-] [data-testid=stColumn] { min-width: 9rem; }
/* Show why a file was refused without a pointer over it. */
[data-testid=stFileChip][aria-invalid=true] { flex-wrap: wrap; height: auto !important; max-width: none !important; }
[data-testid=stFileChip] > [role=alert] {
  position: static !important; width: 100% !important; height: auto !important; margin: 0 !important;
  clip: auto !important; clip-path: none !important; overflow: visible !important; white-space: normal !important;
  font-size: 0.85rem;
}
[data-testid=stFileUploaderDropzone]:has([aria-invalid=true]) { height: auto !important; }
/* Align the buttons of lists at the left. */
[class*=st-key-list-] button :is(div, span) { justify-content: flex-start; text-align: left; }
@media (max-width: 1200px) { [class*=st-key-ways-] [data-testid=stColumn] { min-width: 45%; } }
/* Print in black on white, the whole page, without controls. */
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
// When an upload is interrupted, Streamlit shows the message of its HTTP library. Show a clear one instead.
{
const BROKE_OFF = "The upload was interrupted. Check that the server is running and has free disk space.";
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
    """Add the styles that Streamlit's theme cannot express. Call this once per page."""
    st.html(_STYLE)  # only styles, because Streamlit then reserves no space for it


def own_words() -> None:
    """Replace a message of Streamlit by a clearer one. Call this once per page, at its end."""
    with unseen("words"):
        st.html(_WORDS, unsafe_allow_javascript=True)


def unseen(name: str) -> DeltaGenerator:
    """Return a container for a script that draws nothing. Its placeholder takes no space while the script loads."""
    return st.container(key=f"unseen-{name}", height=1, width=1, border=False)


def button(label: str, *, key: str | None = None, place: DeltaGenerator | None = None, **given: Any) -> bool:
    """Show a button. Return True in the run that handles its press.

    Streamlit forgets a press if the browser's next message aborts the run before it reaches the button. A timeline
    sends such messages by itself. This button keeps a press for the next run that reaches it.
    """
    name = key or label
    (place or st).button(label, key=key, on_click=_press, args=(name,), **given)
    return session().take_press(name)


def form_button(label: str, icon: str, place: DeltaGenerator, *, disabled: bool, key: str | None = None) -> bool:
    """Show the button at the end of a form. Return True in the run that handles its press."""
    look = {"type": "primary", "icon": f":material/{icon}:", "width": "stretch"}
    return button(label, key=key, place=place, disabled=disabled, **look)


@unbroken
def _press(name: str) -> None:
    session().pressed[name] += 1


def text_beside(file: str, name: str) -> str:
    """Return the text of a file in the folder of the module `file`, such as the script of a component."""
    return Path(file).parent.joinpath(name).read_text(encoding="utf-8")


def component(file: str, name: str, html: str, *, css: str = "", js: str = "") -> Any:
    """Declare a component. Unless given, its style and script are in files of its name beside the module `file`."""
    css, js = css or text_beside(file, f"{name}.css"), js or text_beside(file, f"{name}.mjs")
    return st.components.v2.component(f"tessel_{name}", html=html, css=css, js=js)


def trigger_value(key: str, trigger: str) -> Any:
    """Return the value that a component has just sent with a trigger. An empty object if it sent nothing."""
    return (st.session_state.get(key) or {}).get(trigger) or {}


def literal(text: str) -> str:
    """Return `text` with everything escaped that Streamlit's Markdown would interpret.

    >>> literal("block F_0: *no*")
    'block F\\\\_0\\\\: \\\\*no\\\\*'
    """
    # Streamlit replaces the names of icons after it parses Markdown, so an invisible character must split them.
    text = re.sub(r":(?=[a-z0-9_+-]+[/:])", ":\u2060", text)
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|$<>:~&])", r"\\\1", text)


def file_name(text: str, otherwise: str = "plan") -> str:
    """Return `text` with characters replaced that file systems do not allow, or `otherwise` if nothing is left."""
    return re.sub(r"[^\w.+-]+", "-", text).strip("-.") or otherwise


def complain(error: InputError | str, icon: str = "error") -> None:
    """Show an error, in one sentence."""
    st.error(literal(f"{error}."), icon=f":material/{icon}:")


@contextmanager
def complaining() -> Iterator[None]:
    """Show an InputError that is raised inside. What follows it inside does not run."""
    try:
        yield
    except InputError as error:
        complain(error)


def heading_room(name: str, **look: Any) -> DeltaGenerator:
    """Return a container with the height of a row of buttons, so that a late row moves nothing below it."""
    room = st.container(key=f"heading-{name}", **look)
    room.empty()  # an empty container would have no height
    return room


def heading_row(name: str) -> DeltaGenerator:
    """Return the container of a page's first line: its title and its buttons."""
    look = {"vertical_alignment": "center", "horizontal_alignment": "distribute"}
    return heading_room(name, horizontal=True, **look)


def form(name: str) -> DeltaGenerator:
    """Return a bordered container for the fields of a form, of limited width."""
    return st.container(border=True, key=f"form-{name}")


def labelled(place: DeltaGenerator | None = None, **look: Any) -> DeltaGenerator:
    """Return a container with the final height of one labelled field, so that its row moves nothing below it.

    Streamlit draws a field as low as a button until its script is loaded, and styles load no sooner.
    """
    return (place or st).container(height=64, border=False, **look)


def switch_room(*, left: bool = False, **look: Any) -> DeltaGenerator:
    """Return a container with the final height of a switch."""
    side: Literal["left", "right"] = "left" if left else "right"
    return st.container(height=38, border=False, vertical_alignment="center", horizontal_alignment=side, **look)


def title_of(name: str, facts: str) -> None:
    """Show the name of the open object, and facts about it, as the heading of a page."""
    st.markdown(f"**{literal(name)}** &ensp; :gray[{literal(facts)}]", width="stretch")


def switch(label: str, options: Sequence[str], key: str, now: str = "", **look: Any) -> str:
    """Show a switch between a few options. Return the chosen one, at first `now` or else the first."""
    chosen: str = st.segmented_control(
        label, options, default=now or options[0], key=key, required=True, label_visibility="collapsed", **look
    )
    return chosen


def choose(label: str, titles: Mapping[Choice, str], now: Choice | None = None, **look: Any) -> Choice:
    """Show a select box of titles. Return the chosen key, at first `now` or else the first."""
    names = list(titles)
    at = 0 if now is None or now not in titles else names.index(now)
    chosen: Choice = st.selectbox(label, names, at, titles.__getitem__, **look)
    return chosen


_METRIC_PIXELS = 81
"""Height of a key number with its label and the line below it."""


def metrics(numbers: Sequence[KeyNumber]) -> None:
    """Show key numbers in one row, or in two in a narrow window."""
    with st.container(horizontal=True, gap="small"):
        for number in numbers:
            look: dict[str, Any] = {"delta_color": "off", "delta_arrow": "off", "help": number.help}
            beside = literal(number.beside) or None
            st.metric(number.label, number.value, beside, width=number.pixels, height=_METRIC_PIXELS, **look)


def verdict(text: str, *, proved: bool, found: bool) -> None:
    """Show the state of an answer: green if proved, blue if found, otherwise yellow."""
    if proved:
        st.success(literal(text), icon=":material/verified:")
    elif found:
        st.info(literal(text), icon=":material/check:")
    else:
        st.warning(literal(text), icon=":material/error:")


def picture(figure: object, key: str) -> None:
    """Show a plotly figure without its mode bar."""
    st.plotly_chart(figure, key=key, config=STILL)


def download(
    label: str, data: str | Callable[[], str | bytes], name: str, media_type: str = "application/json", **look: Any
) -> None:
    """Show a download button. If `data` is a function, it is called when the button is pressed."""
    look.setdefault("icon", ":material/download:")
    st.download_button(label, data, name, media_type, on_click="ignore", **look)


def config_form(
    config: Config, key: str, *, without: Collection[str] = (), columns: int = 1, limited: bool = True
) -> Config:
    """Show one input for each field of `config`, set to its value. Return the config with the values of the inputs.

    Label, unit, range and help come from the config's options. With `limited`, an input turns red and keeps its value
    if a number is out of range. Otherwise the caller must check the range.
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
    """Show a select box of choices, one of which opens a field for a whole number. Return the choice or the number."""
    offered = (*option.choices, _A_NUMBER)
    now = offered.index(value) if value in option.choices else len(option.choices)
    chosen = st.selectbox(label, offered, now, key=key, help=help)
    if chosen != _A_NUMBER:
        return chosen
    first = value if isinstance(value, int) else int(option.low)
    return st.number_input(f"{label} (number)", int(option.low), int(option.high), first, key=f"{key}-number")


def describe(text: str, source: str) -> None:
    """Show a description in a box of fixed height, so that a longer text moves nothing below it."""
    with st.container(height=76, border=False):
        st.caption(literal(text), help=literal(source))

"""Show decks of slides on the page or in full screen, or save them as one HTML file that works offline."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from typing import Any

import streamlit as st

from pages.parts.learn.levels import result_of, waiting
from pages.shared.run_panel import Solvable
from pages.shared.timeline.component import STYLE
from pages.shared.widgets import download, literal, text_beside
from tessel_core.charts.timeline_script import one_module, timeline_function, with_begin
from tessel_core.learning.deck import Deck
from tessel_core.learning.questions import DeckQuestion
from tessel_core.units import share

_WAITED_S = 1.0


_LOOK = STYLE + text_beside(__file__, "slides.css")
_SCRIPT = "\n".join([f"const showTimeline = {timeline_function()};", one_module([text_beside(__file__, "slides.mjs")])])
_SLIDES = st.components.v2.component("tessel_slides", html='<div class="slides"></div>', css=_LOOK, js=_SCRIPT)

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --st-font: system-ui, sans-serif;
  --st-text-color: #1b232c; --st-background-color: #ffffff;
  --st-secondary-background-color: #f3f5f8; --st-primary-color: #00639c; }}
@media (prefers-color-scheme: dark) {{ :root {{
  --st-text-color: #e8edf2; --st-background-color: #11161d;
  --st-secondary-background-color: #1c242e; --st-primary-color: #3da5e0; }} }}
body {{ margin: 24px; background: var(--st-background-color); }}
{look}
</style></head>
<body><div class="slides"></div>
<script type="application/json" id="deck">{deck}</script>
<script type="module">
{script}
begin({{ data: JSON.parse(document.getElementById("deck").textContent), parentElement: document.body }});
document.querySelector(".slides").focus();
</script></body></html>
"""


def show_deck(deck: Deck, *, goes: bool = False) -> None:
    """Show the slides of a deck and the button that downloads them. `goes` makes them advance by themselves."""
    show_slides(deck.name, DeckQuestion(deck.name), len(deck.slides), deck.about, goes=goes)


def show_slides(
    name: str, question: Solvable[dict[str, Any]], count: int, about_it: str, *, goes: bool = False
) -> None:
    """Show the slides that a question computes, under the sentence `about_it`. `name` is the name of their file."""
    run, data = result_of(question, _WAITED_S)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.markdown(literal(about_it))
        about = "One file that plays in any browser, also offline."
        look = {"help": about, "key": f"take-{name}", "disabled": data is None}
        download("Download as HTML", lambda: deck_page(data or {}), f"{name}.html", "text/html", **look)
    if data is None:
        waiting(run, lambda: st.progress(share(len(run.parts), count), "Solving the schedules on the slides …"))
    else:
        _SLIDES(key=f"slides-{name}-{hash(question):x}", data={**data, "goes": goes})


def deck_page(data: Mapping[str, Any]) -> str:
    """Return a deck as one HTML file. `data` is the answer to the question of the deck."""
    script = with_begin(_SCRIPT).replace("</", "<\\/")
    deck = json.dumps(data).replace("<", "\\u003c")
    return _PAGE.format(title=escape(data["title"]), look=_LOOK, deck=deck, script=script)

"""The timeline component on a page without a server, with the arguments that Streamlit would pass."""

from __future__ import annotations

import base64

from pages.shared.timeline.component import STYLE, WAITING
from tessel_core.charts.timeline_script import timeline_module

THEMES = {
    "light": ("#1b232c", "#ffffff", "#f3f5f8", "#0072b2"),
    "dark": ("#e8edf2", "#11161d", "#1c242e", "#3da5e0"),
}
_BEGIN = """async ([html, css, js, data, height]) => {
  const host = document.getElementById('host');
  host.style.height = height + 'px';
  const root = host.attachShadow({ mode: 'open' });
  root.innerHTML = '<div>' + html + '<style>' + css + '</style></div>';
  root.firstChild.style.height = '100%';
  const decoded = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const bytes = decoded(data);
  window.told = [];
  const url = URL.createObjectURL(new Blob([js], { type: 'text/javascript' }));
  const { default: begin } = await import(url);
  const take = (its) => begin({ data: its, parentElement: root, setStateValue: (...each) => window.told.push(each) });
  window.takeOther = (text) => void take(decoded(text));
  const at = performance.now();
  take(bytes);
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done, 0)));
  return performance.now() - at;
}"""


def show_timeline(page, data: bytes, height: int, theme: str = "light") -> float:
    """Show a timeline, and return the milliseconds from the arrival of the data until the page is painted."""
    text, ground, raised, accent = THEMES[theme]
    colours = f"--st-text-color:{text};--st-background-color:{ground};--st-secondary-background-color:{raised}"
    look = f"{colours};--st-primary-color:{accent};--st-font:sans-serif;background:{ground};margin:16px"
    page.set_content(f'<body style="{look}"><div id="host"></div></body>')
    given = [WAITING, STYLE, timeline_module(), base64.b64encode(data).decode(), height]
    found: float = page.evaluate(_BEGIN, given)
    return found


def show_other(page, data: bytes) -> None:
    """Pass another schedule to the same component, as a new search does."""
    page.evaluate("data => window.takeOther(data)", base64.b64encode(data).decode())

"""Find visual faults of pages: axe-core's rules, layout shift, and clipped or overlapping text."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

from helpers.browser import IDLE

LOOKS = (("dark", (1024, 768)), ("light", (2560, 800)))
"""Tested in addition to the light theme at the usual size.

Only contrast depends on the theme, and only layout on the width.
"""
MAX_SHIFT = 0.1
"""Largest layout shift that Web Vitals call good. An idle machine shows less than 0.05, a busy one sometimes more."""

WATCH = """
window.shifts = [];
const observer = new PerformanceObserver(list => window.shifts.push(...list.getEntries()));
observer.observe({type: 'layout-shift', buffered: true});
window.arrivals = [];
let path = location.pathname, arrival = null, ran = false;
const running = () => document.querySelector('[data-testid=stApp]')?.dataset.testScriptState !== 'notRunning';
new MutationObserver(() => {
    if (location.pathname !== path) {
        path = location.pathname;
        ran = false;
        if (arrival === null) window.arrivals.push((arrival = [performance.now(), Infinity]));
    }
    ran ||= running();
    if (arrival === null || !ran || running()) return;
    const ended = arrival;
    arrival = null;
    requestAnimationFrame(() => requestAnimationFrame(() => (ended[1] = performance.now())));
}).observe(document, {attributes: true, childList: true, characterData: true, subtree: true});
"""
"""Record layout shifts, and when one page of the app replaces another, until its script has run once.
Streamlit fills the new page into the elements of the old one, which on a busy machine happens long after the click."""
PAINTED = """async () => {
    for (let frame = 0; frame < 3; frame++) await new Promise(requestAnimationFrame);
}"""
"""Wait for a few frames, after which elements that depend on width or theme have been redrawn."""
SHIFT = """() => {
    // A block container of Streamlit's is narrow until it hears that the page is wide; nothing is in it yet.
    const unseen = each => each.sources.every(source => source.node?.dataset?.testid === 'stMainBlockContainer');
    const arrives = each => window.arrivals.some(([begin, end]) => begin <= each.startTime && each.startTime <= end);
    const counts = each => !each.hadRecentInput && !unseen(each) && !arrives(each);
    let most = 0, together = [];
    for (const each of window.shifts.splice(0).filter(counts)) {
        const since = shift => each.startTime - shift.startTime;
        if (together.length && (since(together.at(-1)) > 1000 || since(together[0]) > 5000)) together = [];
        together.push(each);
        most = Math.max(most, together.reduce((sum, shift) => sum + shift.value, 0));
    }
    return most;
}"""
"""Cumulative layout shift as in Web Vitals: the largest session window of shifts without user input."""

MISPLACED = """() => {
    const found = [], texts = [], walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const main = document.querySelector('[data-testid=stMain]');
    if (main.scrollWidth > main.clientWidth + 1) found.push('the page is wider than the window');
    const layer = element => element.closest('[data-floating-ui-portal], [data-testid=stToast], header');
    for (let node; (node = walker.nextNode());) {
        const element = node.parentElement, range = document.createRange();
        const unread = 'script, style, [data-testid=stIconMaterial], details:not([open]) > :not(summary)';
        if (!node.data.trim() || element.closest(unread)) continue;
        if (!element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
        range.selectNodeContents(node);
        const text = range.getBoundingClientRect(), name = node.data.trim().slice(0, 40);
        let {left, top, right, bottom} = text, scrolls = [false, false], cut = false;
        for (let box = element; box !== document.body; box = box.parentElement) {
            const {overflowX, overflowY} = getComputedStyle(box), edge = box.getBoundingClientRect();
            if (overflowX === 'visible' && overflowY === 'visible') continue;
            const rolls = [/auto|scroll/.test(overflowX), /auto|scroll/.test(overflowY)];
            if (box.namespaceURI.endsWith('svg')) continue;
            const beside = text.right > edge.right + 1.5 || text.left < edge.left - 1.5;
            const inside = text.right > edge.left && text.left < edge.right;
            cut ||= !scrolls[0] && !rolls[0] && overflowX !== 'visible' && beside && inside;
            scrolls = scrolls.map((each, axis) => each || rolls[axis]);
            [left, top] = [Math.max(left, edge.left), Math.max(top, edge.top)];
            [right, bottom] = [Math.min(right, edge.right), Math.min(bottom, edge.bottom)];
        }
        if (right - left < 2 || bottom - top < 2) continue;
        if (cut) found.push(`cut: ${name}`);
        if (text.right > innerWidth + 1 && !scrolls[0]) found.push(`beyond the window: ${name}`);
        for (const [other, box, said] of texts) {
            const wide = Math.min(right, box.right) - Math.max(left, box.left);
            const high = Math.min(bottom, box.bottom) - Math.max(top, box.top);
            const related = layer(element) !== layer(other) || other.contains(element) || element.contains(other);
            if (wide > 3 && high > 4 && !related)
                found.push(`over each other: ${name} and ${said}`);
        }
        texts.push([element, {left, top, right, bottom}, name]);
    }
    for (const field of document.querySelectorAll('input:is([type=text], [type=number])'))
        if (field.checkVisibility() && !field.closest('details:not([open])') &&
            field.scrollWidth > field.clientWidth + 1)
            found.push(`cut: ${field.value} in ${field.ariaLabel}`);
    return found;
}"""
UNSEEN_FOCUS = """() => {
    let at = document.activeElement;
    while (at.shadowRoot?.activeElement) at = at.shadowRoot.activeElement;
    if (at === document.body) return [];
    const near = [at];
    while (near.length < 4 && near.at(-1).parentElement) near.push(near.at(-1).parentElement);
    const accent = ['rgb(0, 99, 156)', 'rgb(61, 165, 224)'];
    const seen = near.map(each => getComputedStyle(each)).some(look =>
        (look.outlineStyle !== 'none' && parseFloat(look.outlineWidth) > 0)
        || look.boxShadow !== 'none' || accent.includes(look.borderTopColor));
    return seen ? [] : [`${at.tagName} ${at.dataset.testid ?? ''} ${at.ariaLabel ?? at.textContent.slice(0, 30)}`];
}"""
"""The focused element, if neither outline nor shadow nor border shows the focus."""


def axe() -> str:
    """Return the script of axe-core from a development package."""
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def assert_no_layout_shift(page, name: str) -> None:
    """Assert that nothing on the page has moved since the last check, except after user input."""
    page.wait_for_function(IDLE)
    page.wait_for_timeout(200)
    shift = page.evaluate(SHIFT)
    assert shift <= MAX_SHIFT, f"{name}: jumps by {shift:.3f}"


def looks_right(page, name: str, *, came: bool = True) -> None:
    """Assert that the page has no visual faults in both themes and at three widths, and that nothing has moved.

    `came=False` skips the check of movement, for pages that a button press has filled or emptied.
    """
    if came:
        assert_no_layout_shift(page, name)
    page.wait_for_function(IDLE)
    found = list[str]()
    before = page.viewport_size
    page.add_style_tag(content="*, *::before, *::after { transition: none !important; }")  # colours would fade
    found += [f"{name}, light: {each}" for each in _lasting(page, lambda: _violations(page, all_rules=True))]
    found += [f"{name}, {before['width']} wide: {each}" for each in _lasting(page, lambda: page.evaluate(MISPLACED))]
    for theme, (width, height) in LOOKS:
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate(PAINTED)
        page.wait_for_function(IDLE)
        found += [f"{name}, {width} wide: {each}" for each in _lasting(page, lambda: page.evaluate(MISPLACED))]
        if theme == "dark":
            found += [f"{name}, dark: {each}" for each in _lasting(page, lambda: _violations(page, all_rules=False))]
    page.set_viewport_size(before)
    page.evaluate(PAINTED)
    page.evaluate("window.shifts.length = 0")
    assert not found, "\n".join(found)


def _lasting(page, read: Callable[[], list[str]]) -> list[str]:
    """Return the faults that remain in repeated checks, and ignore those during a change of width or theme."""
    for pause in (150, 500, 2000):
        found = read()
        if not found:
            return []
        page.wait_for_timeout(pause)
    return read()


def _violations(page, *, all_rules: bool) -> list[str]:
    """Return serious and critical violations of axe-core.

    Without `all_rules`, only contrast is checked, which depends on the theme.
    """
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe())
    options = {"resultTypes": ["violations"]} | ({} if all_rules else {"runOnly": ["color-contrast"]})
    found = page.evaluate("options => axe.run(document, options).then(found => found.violations)", options)
    return [
        f"{each['id']}: {node['html'][:120]}"
        for each in found
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]

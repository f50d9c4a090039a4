"""Small pieces of a page.  Plain text is escaped here; only what is already `Html` goes in as it is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape


class Html(str):
    """Text that is HTML already, made in this house and not taken from a file."""

    __slots__ = ()


def section(title: str, *parts: Html) -> Html:
    """A heading and what stands under it."""
    return Html(f"<section><h2>{escape(title)}</h2>\n{''.join(parts)}</section>")


def titled(title: str, *parts: Html) -> Html:
    """A smaller heading and what stands under it."""
    return Html(f"<h3>{escape(title)}</h3>{''.join(parts)}")


def columns(*parts: Html) -> Html:
    """Side by side where there is room."""
    return Html(f'<div class="columns">{"".join(f"<div>{part}</div>" for part in parts)}</div>')


def note(text: str) -> Html:
    """A small remark."""
    return Html(f'<p class="note">{escape(text)}</p>')


def table(names: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Collection[int] = ()) -> Html:
    """Cells under names; the columns in `numbers` are set to the right."""
    return _scrolled(f"<thead>{_row('th', names, numbers)}</thead>", rows, numbers)


def facts(pairs: Iterable[tuple[str, str]]) -> Html:
    """Names with values."""
    return _scrolled("", pairs, ())


def filled(text: str, share: float) -> Html:
    """`text` and a small bar behind it of which `share`, a fraction, is full."""
    return Html(f'{escape(text)}<span class="fill"><i style="width:{share:.1%}"></i></span>')


def _scrolled(head: str, rows: Iterable[Sequence[str]], numbers: Collection[int]) -> Html:
    body = "\n".join(_row("td", row, numbers) for row in rows)
    return Html(f'<div class="scroll"><table>{head}<tbody>\n{body}\n</tbody></table></div>')


def _row(tag: str, cells: Sequence[str], numbers: Collection[int]) -> str:
    kinds = [' class="number"' if i in numbers else "" for i in range(len(cells))]
    texts = [cell if isinstance(cell, Html) else escape(cell) for cell in cells]
    return f"<tr>{''.join(f'<{tag}{kind}>{text}</{tag}>' for kind, text in zip(kinds, texts, strict=True))}</tr>"

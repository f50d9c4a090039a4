"""Draw a small program: its lines at the left, and the tensors of highlighted operations at the right."""

from __future__ import annotations

from collections.abc import Container
from html import escape

from tessel_core.charts.palette import SERIES_COLOURS
from tessel_core.ir.program import Op, Program

_LINE, _LETTER, _TEXT = 21, 6.9, 12
_SIDE, _APART, _ROW = 56, 26, 96
"""Longest side of a tensor, distance between tensors, and height of an operation, in pixels."""


def program_picture(program: Program, lit: Container[str]) -> str:
    """Draw the program as SVG, with operations of the kinds `lit` highlighted.

    The picture of an operation has its input tensors, its kind and its output tensors. A rectangle has the proportions
    of its tensor, and the colour of its device.
    """
    lines = [_line(program, op) for op in program.ops]
    wide = _LETTER * max(map(len, lines)) + 24
    parts, y = list[str](), 0.0
    longest = max((side for each in program.types for side in each.shape), default=1)
    for i, (op, line) in enumerate(zip(program.ops, lines, strict=True)):
        chosen = op.kind in lit
        if chosen:
            top = _LINE * i
            shape = f'x="0" y="{top}" width="{wide:g}" height="{_LINE}"'
            parts.append(f'<rect {shape} fill="{SERIES_COLOURS[1]}" fill-opacity=".25"/>')
        weight = "bold" if chosen else "normal"
        parts.append(
            f'<text x="8" y="{_LINE * i + 15}" font-size="{_TEXT}" font-family="monospace" font-weight="{weight}" '
            f'fill="currentColor" xml:space="preserve">{escape(line)}</text>'
        )
    right = wide + 40
    for op in program.ops:
        if op.kind in lit:
            drawn, x = _operation(program, op, wide + 40, y, longest)
            parts += drawn
            right, y = max(right, x), y + _ROW
    high = max(_LINE * len(lines), y) + 8
    size = f'viewBox="0 0 {right:g} {high:g}" style="max-width: 100%; max-height: 64vh; width: {right:g}px"'
    about = escape(f"{program.name}: {'; '.join(lines)}")
    return f'<svg {size} role="img" aria-label="{about}">{"".join(parts)}</svg>'


def _line(program: Program, op: Op) -> str:
    made = ", ".join(f"{program.value_name(value)}@{program.types[value].device}" for value in op.outputs)
    return f"{made} = {op.kind}({', '.join(map(program.value_name, op.inputs))})"


def _operation(program: Program, op: Op, x: float, y: float, longest: int) -> tuple[list[str], float]:
    """Draw the tensors of an operation to the right of `x`. Return the SVG parts and the right end."""
    parts, middle = list[str](), y + (_ROW - _APART) / 2
    for values, then in ((op.inputs, op.kind), (op.outputs, "")):
        for value in values:
            of = program.types[value]
            if not of.shape:
                continue
            high, wide = (max(4.0, _SIDE * side / longest) for side in (*of.shape, 1)[:2])
            name = f"{program.value_name(value)}@{of.device}"
            room = max(wide, _LETTER * len(name))
            fill = SERIES_COLOURS[2 + of.device % 2]
            at = f'x="{x + (room - wide) / 2:g}" y="{middle - high / 2:g}" width="{wide:g}" height="{high:g}"'
            parts.append(f'<rect {at} rx="2" fill="{fill}"/>')
            parts.append(_label(x + room / 2, middle + _SIDE / 2 + 16, name))
            x += room + _APART
        if then:
            parts.append(_label(x + _LETTER * len(then) / 2, middle + 4, then))
            x += _LETTER * len(then) + _APART
    return parts, x


def _label(x: float, y: float, text: str) -> str:
    place = f'x="{x:g}" y="{y:g}" font-size="{_TEXT}" text-anchor="middle"'
    return f'<text {place} fill="currentColor">{escape(text)}</text>'

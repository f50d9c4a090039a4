"""Conversion of times and memory from floats to the integers in plans, and from both to text."""

from __future__ import annotations

import math
from collections.abc import Sequence

MAGNITUDE = 2**53
"""Largest integer in a file.  JSON readers that use doubles lose digits of larger ones."""

TICKS_PER_SECOND = {"ns": 1e9, "us": 1e6, "ms": 1e3, "s": 1.0}
"""Ticks per second of each real time unit.  Any other unit ("step", "slot") is abstract."""


def to_ticks(seconds: float, unit: str = "ns") -> int:
    """Convert seconds to a whole number of `unit`s, rounded to nearest and at least 1.

    >>> to_ticks(1.5e-6)
    1500
    """
    if not math.isfinite(seconds) or seconds < 0:
        raise ValueError(f"a duration must be finite and not negative, got {seconds}")
    return max(1, round(seconds * TICKS_PER_SECOND[unit]))


def to_bytes(amount: float) -> int:
    """Round an amount of bytes up to a whole number, so that memory is never understated."""
    if not math.isfinite(amount):
        raise ValueError(f"an amount of memory must be finite, got {amount}")
    return math.ceil(amount)


_BYTE_STEPS = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))
_FLOP_STEPS = (("PFLOP", 1e15), ("TFLOP", 1e12), ("GFLOP", 1e9), ("MFLOP", 1e6), ("kFLOP", 1e3))
_NS_STEPS = (("s", 1e9), ("ms", 1e6), ("µs", 1e3))


def show_time(ticks: float, unit: str) -> str:
    """Format a duration: three significant digits for real units, exact for abstract ones.

    >>> show_time(1_234_567, "ns")
    '1.23 ms'
    >>> show_time(4, "step")
    '4 steps'
    """
    if unit not in TICKS_PER_SECOND:
        return counted(ticks, unit)
    return _scaled(ticks * 1e9 / TICKS_PER_SECOND[unit], _NS_STEPS, "ns")


def show_memory(amount: float, unit: str) -> str:
    """Format an amount of memory.

    >>> show_memory(1_500_000_000, "B")
    '1.5 GB'
    """
    if unit != "B":
        return counted(amount, unit)
    return _scaled(amount, _BYTE_STEPS, "B")


def show_times(ticks: Sequence[int], unit: str) -> tuple[str, ...]:
    """Format durations with enough digits to distinguish them.

    >>> show_times((1_234_567, 1_234_890, 4_000_000), "ns")
    ('1.2346 ms', '1.2349 ms', '4 ms')
    """
    scale = 1e9 / TICKS_PER_SECOND[unit] if unit in TICKS_PER_SECOND else None
    return _distinct(ticks, unit, None if scale is None else (scale, _NS_STEPS, "ns"))


def show_amounts(amounts: Sequence[int], unit: str) -> tuple[str, ...]:
    """Format amounts of memory with enough digits to distinguish them."""
    return _distinct(amounts, unit, (1.0, _BYTE_STEPS, "B") if unit == "B" else None)


def _distinct(
    numbers: Sequence[int], unit: str, scaled: tuple[float, tuple[tuple[str, float], ...], str] | None
) -> tuple[str, ...]:
    if scaled is None:
        return tuple(counted(number, unit) for number in numbers)
    factor, steps, smallest = scaled
    for digits in range(3, 17):
        texts = tuple(_scaled(number * factor, steps, smallest, digits) for number in numbers)
        if len(set(texts)) == len(set(numbers)):
            break
    return texts


def show_flops(amount: float) -> str:
    """Format an amount of floating-point work.

    >>> show_flops(2.5e11)
    '250 GFLOP'
    """
    return _scaled(amount, _FLOP_STEPS, "FLOP")


def many(unit: str) -> str:
    """Return the name of a unit for the title of an axis, in the plural if it has one.

    >>> many("step"), many("ms"), many("GB")
    ('steps', 'ms', 'GB')
    """
    fixed = {*TICKS_PER_SECOND, *(name for name, _ in _BYTE_STEPS + _NS_STEPS), "B"}
    return unit if unit in fixed or unit.endswith("s") else f"{unit}{'es' if unit.endswith('ch') else 's'}"


def time_scale(largest: float, unit: str) -> tuple[float, str]:
    """Return (divisor, unit) for a readable time axis up to `largest`."""
    if unit not in TICKS_PER_SECOND:
        return 1.0, unit
    ns_per_tick = 1e9 / TICKS_PER_SECOND[unit]
    step, name = _scale(largest * ns_per_tick, _NS_STEPS, "ns")
    return step / ns_per_tick, name


def flops_scale(largest: float) -> tuple[float, str]:
    """Return (divisor, unit) for a readable axis of floating-point work up to `largest`."""
    return _scale(largest, _FLOP_STEPS, "FLOP")


def memory_scale(largest: float, unit: str) -> tuple[float, str]:
    """Return (divisor, unit) for a readable axis of memory up to `largest`."""
    return _scale(largest, _BYTE_STEPS, "B") if unit == "B" else (1.0, unit)


def _scale(largest: float, steps: tuple[tuple[str, float], ...], smallest: str) -> tuple[float, str]:
    return next(((step, name) for name, step in steps if largest >= step), (1.0, smallest))


def _scaled(amount: float, steps: tuple[tuple[str, float], ...], smallest: str, digits: int = 3) -> str:
    step, name = _scale(abs(amount), steps, smallest)
    return f"{amount / step:.{digits}g} {name}"


def counted(amount: float, unit: str) -> str:
    """Format a number with its unit, in the plural if it has one.

    >>> counted(1, "micro-batch"), counted(3000, "micro-batch"), counted(2.5, "step")
    ('1 micro-batch', '3,000 micro-batches', '2.5 steps')
    """
    number = f"{amount:,.0f}" if float(amount).is_integer() else f"{amount:,.3f}".rstrip("0")
    return f"{number} {unit if amount == 1 else many(unit)}"


def show_gap(gap: float) -> str:
    """Format a gap, a share of the objective, in percent.  A positive gap is never shown as 0%.

    >>> show_gap(1 / 12), show_gap(1e-9), show_gap(0.0)
    ('8.33%', '0.01%', '0%')
    """
    return f"{max(gap, 0.0001):.2%}" if gap > 0 else "0%"


def share(part: float, whole: float) -> float:
    """Return `part / whole`, clamped to [0, 1]; 0 if `whole` is 0."""
    return min(1.0, max(0.0, part / whole)) if whole else 0.0


def gigabytes(amount: int) -> int:
    """Convert bytes to whole GB, rounded down."""
    return amount // 10**9


def of_gigabytes(amount: int) -> int:
    """Convert GB to bytes."""
    return amount * 10**9

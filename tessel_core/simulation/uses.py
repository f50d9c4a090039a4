"""Who makes and who takes the values of a program, as columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from tessel_core.ir.program import Program

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class ValueUses:
    """Row j: operation `maker[j]` makes value `made[j]`; row k: operation `taker[k]` takes `taken[k]`; in order."""

    made: Numbers
    maker: Numbers
    taken: Numbers
    taker: Numbers

    @classmethod
    def of(cls, program: Program) -> ValueUses:
        """Of all operations."""
        made, maker = _columns(op.outputs for op in program.ops)
        taken, taker = _columns(op.inputs for op in program.ops)
        return cls(made, maker, taken, taker)


def _columns(values: Iterable[tuple[int, ...]]) -> tuple[Numbers, Numbers]:
    rows = list(values)
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum())), np.repeat(
        np.arange(len(rows)), lengths
    )


def type_numbers(program: Program) -> list[int]:
    """Per value a number of its type; equal types that are one object have one number."""
    number: dict[int, int] = {}
    return [number.setdefault(id(each), len(number)) for each in program.types]


def devices_and_bytes(program: Program) -> tuple[NDArray[np.int32], Numbers]:
    """Per value."""
    different = {id(each): each for each in program.types}
    which = np.array(type_numbers(program), np.int64)
    devices = np.array([each.device for each in different.values()], np.int32)
    return devices[which], np.array([each.bytes for each in different.values()], np.int64)[which]

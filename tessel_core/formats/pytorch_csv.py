"""PyTorch pipelining schedules as CSV: one row per rank, and one cell per action such as `2F0`.

Torch 2.13 and 2.15 write a full backward as `2B0`, and a split one as `2I0` and `2W0`.  Older files write `2BW0`, `2B0`
and `2W0`, which are converted to the newer notation.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from tessel_core.errors import InputError

COMPUTING = ("F", "I", "B", "W")
"""Actions of `compute_only` files."""
_TALKING = ("SEND_F", "RECV_F", "SEND_B", "RECV_B", "WAIT_SEND_F", "WAIT_SEND_B")
_WHOLE_STAGE = ("UNSHARD", "RESHARD", "REDUCE_GRAD", "WAIT_REDUCE_GRAD")
_OLDER_WHOLE = "BW"
_NEWER = {_OLDER_WHOLE: "B", "B": "I"}
"""Names of actions in the older notation, each with its name in the newer one."""
_KINDS = "|".join((_OLDER_WHOLE, *COMPUTING, *_TALKING, *_WHOLE_STAGE))
_ACTION = re.compile(rf"(\d{{1,9}})({_KINDS})(\d{{0,9}})", re.ASCII)
_OVERLAPPED = re.compile(r"\(([^();]*);([^();]*)\)OVERLAP_F_B")
_MAX_SHOWN_CHARACTERS = 40


class StageAction(NamedTuple):
    """One action of a stage, for one micro-batch or, if `micro_batch` is None, for the whole stage."""

    stage: int
    kind: str
    """F, B (full backward), I (input gradient), W (weight gradient), or a name of torch such as SEND_F."""
    micro_batch: int | None

    def __str__(self) -> str:
        return f"{self.stage}{self.kind}{'' if self.micro_batch is None else self.micro_batch}"


class Cell(NamedTuple):
    """One cell of the file. It has no action if it is idle, and two actions if a forward and a backward overlap."""

    text: str
    actions: tuple[StageAction, ...]


@dataclass(frozen=True)
class PyTorchCsv:
    """Cells of every rank.  Each stage is on one rank, and no action is repeated."""

    rows: tuple[tuple[Cell, ...], ...]

    @cached_property
    def rank_of(self) -> dict[int, int]:
        """Rank of each stage."""
        return {action.stage: rank for rank, _, action in self.each()}

    @cached_property
    def communicates(self) -> bool:
        """Whether the file contains sends and receives (`compute_comms`) or only computing (`compute_only`)."""
        return any(action.kind not in COMPUTING for _, _, action in self.each())

    def each(self) -> Iterator[tuple[int, int, StageAction]]:
        """Yield every action with its row and column, counted from 0."""
        for row, cells in enumerate(self.rows):
            for column, cell in enumerate(cells):
                for action in cell.actions:
                    yield row, column, action


def looks_like_pytorch_csv(data: bytes, name: str) -> bool:
    """Return whether a file is a PyTorch CSV: by its suffix, or because its first cell is an action."""
    if name.lower().endswith(".csv"):
        return True
    first = (
        data[:_MAX_SHOWN_CHARACTERS]
        .partition(b"\n")[0]
        .decode("ascii", "replace")
        .strip()
        .lstrip(",")
        .partition(",")[0]
    )
    return bool(_ACTION.fullmatch(first.strip()) or _OVERLAPPED.fullmatch(first.strip()))


def read_pytorch_csv(data: bytes, name: str) -> PyTorchCsv:
    """Read the cells of a file.

    Raises InputError with `name`, row and column (from 1) for a cell that is not an action or contradicts another.
    """
    try:
        contents = _newer(PyTorchCsv(tuple(_rows(data))))
        _check_stages(contents)
    except InputError as error:
        raise error.within(name) from None
    return contents


def _newer(file: PyTorchCsv) -> PyTorchCsv:
    """Convert a file to the newer notation.  Raises InputError if it mixes both.

    A file is in the older notation if it contains `BW`, or `W` without `I`.
    """
    first = dict[str, tuple[int, int, StageAction]]()
    for row, column, action in file.each():
        first.setdefault(action.kind, (row, column, action))
    if _OLDER_WHOLE in first and "I" in first:
        (row, column, action), (older_row, older_column, older) = first["I"], first[_OLDER_WHOLE]
        why = f"is in the newer notation, but '{older}' in {cell_place(older_row, older_column)} is in the older one"
        raise InputError(cell_place(row, column), f"cell '{action}' {why}")
    if _OLDER_WHOLE not in first and ("W" not in first or "I" in first):
        return file
    return PyTorchCsv(tuple(tuple(_newer_cell(cell) for cell in row) for row in file.rows))


def _newer_cell(cell: Cell) -> Cell:
    kinds = ((each, _NEWER.get(each.kind, each.kind)) for each in cell.actions)
    return Cell(cell.text, tuple(each._replace(kind=kind) for each, kind in kinds))


def cell_place(row: int, column: int) -> str:
    """Return the place of a cell for messages, counted from 1; the arguments count from 0."""
    return f"row {row + 1}, column {column + 1}"


def _rows(data: bytes) -> Iterator[tuple[Cell, ...]]:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise InputError("the file", "is not text") from None
    if not text.strip():
        raise InputError("the file", "is empty, it needs a row for each rank")
    try:
        for row, cells in enumerate(csv.reader(io.StringIO(text, newline=""), strict=True)):
            if not cells:
                raise InputError(
                    f"row {row + 1}", "is blank; each row is a rank, and the row of an idle rank needs at least a comma"
                )
            yield tuple(_placed_cell(cell.strip(), row, column) for column, cell in enumerate(cells))
    except csv.Error as error:
        raise InputError("the file", f"is not CSV: {error}") from None


def _placed_cell(text: str, row: int, column: int) -> Cell:
    try:
        return _cell(text)
    except ValueError as error:
        raise InputError(cell_place(row, column), f"cell {_brief(text)} {error}") from None


def _cell(text: str) -> Cell:
    """Read a cell.  Raises ValueError with the reason."""
    if not text:
        return Cell(text, ())
    pair = _OVERLAPPED.fullmatch(text) if text[0] == "(" else None
    if not pair:
        return Cell(text, (read_action(text),))
    actions = tuple(map(read_action, pair.groups()))
    if {action.kind for action in actions} - {*COMPUTING, _OLDER_WHOLE}:
        raise ValueError("overlaps actions that do not compute")
    return Cell(text, actions)


def read_action(text: str) -> StageAction:
    """Read one action, such as "2F0".  Raises ValueError with the reason."""
    match = _ACTION.fullmatch(text)
    if not match:
        raise ValueError("is not a PyTorch action, such as 0F2, 1B0 or 1RECV_F3")
    stage, kind, micro_batch = match.groups()
    if not micro_batch and kind not in _WHOLE_STAGE:
        raise ValueError("has no micro-batch")
    return StageAction(int(stage), kind, int(micro_batch) if micro_batch else None)


def _brief(text: str) -> str:
    return repr(text if len(text) <= _MAX_SHOWN_CHARACTERS else f"{text[: _MAX_SHOWN_CHARACTERS - 1]}…")


def _check_stages(file: PyTorchCsv) -> None:
    rank_of, first_at = dict[int, int](), dict[StageAction, tuple[int, int]]()
    for row, column, action in file.each():
        rank = rank_of.setdefault(action.stage, row)
        if rank != row:
            why = f"stage {action.stage} is already on rank {rank} (row {rank + 1}), and a stage has one rank"
            raise InputError(cell_place(row, column), f"cell '{action}': {why}")
        if action.micro_batch is None:
            continue
        if action in first_at:
            raise InputError(
                cell_place(row, column), f"cell '{action}' repeats the action in {cell_place(*first_at[action])}"
            )
        first_at[action] = row, column

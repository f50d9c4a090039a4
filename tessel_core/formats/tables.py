"""Convert a plan to three editable tables and back, checking each cell.

A table is a list of rows.  A row is a dict from column title to cell.  Users type the cells, so a cell may hold any
value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_amount, as_integer
from tessel_core.formats.record import TEXT, Codec, Record, at_least, by_name, list_of, or_null
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice

Row = Mapping[str, object]

DEVICE_COLUMNS = ("device", "capacity", "static")
BLOCK_COLUMNS = ("block", "kind", "devices", "duration", "memory")
DEPENDENCY_COLUMNS = ("from", "to", "lag")
NUMBER_COLUMNS = ("duration", "memory", "lag", "capacity", "static")
LIST_COLUMNS = ("devices",)


@dataclass(frozen=True, slots=True)
class TableEdits:
    """Changes of a table relative to the rows that were shown.  Rows are positions."""

    changed: Mapping[int, Row]
    """Changed cells of each row."""
    added: tuple[Row, ...]
    deleted: frozenset[int]

    def __bool__(self) -> bool:
        return bool(self.changed or self.added or self.deleted)

    @property
    def filled(self) -> list[Row]:
        """Added rows that are not empty. A row with only an unticked checkbox is empty."""
        return [row for row in self.added if not all(is_empty(value) or value is False for value in row.values())]


@dataclass(frozen=True)
class PlanTables:
    """A plan that is being edited: its tables, which may be invalid, and the fields that the tables do not show."""

    name: str
    time_unit: str
    memory_unit: str
    devices: tuple[Row, ...]
    blocks: tuple[Row, ...]
    dependencies: tuple[Row, ...]
    labels: tuple[tuple[str, str], ...] = ()
    """Pairs of block name and label."""
    samples: int | None = None


def tables_of(plan: MicroBatchPlan) -> PlanTables:
    """Return the tables of a plan.  Devices of a block appear by name."""
    names = [device.name for device in plan.devices]
    devices: Sequence[tuple[object, ...]] = [(d.name, d.memory_capacity, d.static_memory) for d in plan.devices]
    blocks = [(b.name, str(b.kind), [names[d] for d in b.devices], b.duration, b.memory) for b in plan.blocks]
    dependencies = [(d.predecessor, d.successor, d.lag) for d in plan.dependencies]
    tables = (DEVICE_COLUMNS, devices), (BLOCK_COLUMNS, blocks), (DEPENDENCY_COLUMNS, dependencies)
    first, second, third = (tuple(dict(zip(columns, row, strict=True)) for row in table) for columns, table in tables)
    labels = tuple((block.name, block.label) for block in plan.blocks if block.label)
    return PlanTables(plan.name, plan.time_unit, plan.memory_unit, first, second, third, labels, plan.samples)


def _typed_cell(column: str) -> Codec:
    """Return the codec of a cell: null, or a number, text or list of names, depending on the column."""
    if column in LIST_COLUMNS:
        return or_null(list_of(TEXT, list))
    return or_null(Codec(_typed_number) if column in NUMBER_COLUMNS else TEXT)


def _typed_number(value: object, where: str) -> int:
    """Read a whole number of 64 bits.  Drafts may hold numbers that are too large for a plan."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise InputError(where, "must be a whole number of at most 64 bits")
    return value


def _typed_rows(columns: Sequence[str]) -> Codec:
    cells = {column: _typed_cell(column) for column in columns}

    def row(value: object, where: str) -> Row:
        fields = Fields(value, where)
        fields.only(*columns)
        return {column: cell.read(fields.take(column), fields.place(column)) for column, cell in cells.items()}

    return list_of(Codec(row, dict))


DRAFT = Record(
    PlanTables,
    *("name", "time_unit", "memory_unit"),
    devices=_typed_rows(DEVICE_COLUMNS),
    blocks=_typed_rows(BLOCK_COLUMNS),
    dependencies=_typed_rows(DEPENDENCY_COLUMNS),
    labels=by_name(TEXT).sparse(),
    samples=or_null(at_least(1)).sparse(),
)
"""Codec that stores unfinished tables as a document."""


def plan_of(tables: PlanTables) -> MicroBatchPlan:
    """Build the plan of the tables.  Empty rows are ignored.

    Raises InputError with the table, the row (from 1) and the column, or with the rule that the whole plan breaks.
    """
    devices = tuple(_device(cells) for cells in _rows(tables.devices, "devices"))
    index = {device.name: d for d, device in enumerate(devices)}
    labels = dict(tables.labels)
    blocks = tuple(_block(cells, index, labels) for cells in _rows(tables.blocks, "blocks"))
    dependencies = tuple(_dependency(cells) for cells in _rows(tables.dependencies, "dependencies"))
    units = tables.time_unit, tables.memory_unit
    return MicroBatchPlan(tables.name, devices, blocks, dependencies, *units, tables.samples)


class Cells:
    """One row, and its name in error messages.  Its methods raise InputError for a wrong cell."""

    def __init__(self, row: Row, where: str) -> None:
        self._row = row
        self.where = where

    def place(self, column: str) -> str:
        """Return the place of a cell for error messages."""
        return f"{self.where}, column {column}"

    @property
    def columns(self) -> Iterable[str]:
        return self._row.keys()

    def text(self, column: str) -> str:
        """Return the text of a cell that must not be empty."""
        value = self._row.get(column)
        if not isinstance(value, str) or not value.strip():
            raise InputError(self.place(column), "is empty")
        return value.strip()

    def empty(self, column: str) -> bool:
        return is_empty(self._row.get(column))

    def integer(self, column: str, least: int, default: int | None = None) -> int:
        """Return a whole number. 4.0 is allowed, because tables convert a column with empty cells to floats."""
        value = self._row.get(column)
        if default is not None and is_empty(value):
            return default
        if is_empty(value):
            raise InputError(self.place(column), "is empty")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return as_integer(value, self.place(column), least)

    def amount(self, column: str) -> float | None:
        """Return a finite number of at least 0; None if the cell is empty."""
        value = self._row.get(column)
        return None if is_empty(value) else as_amount(value, self.place(column))

    def flag(self, column: str) -> bool:
        """Return a boolean; an empty cell is False."""
        value = self._row.get(column)
        if not is_empty(value) and not isinstance(value, bool):
            raise InputError(self.place(column), f"must be true or false, got {value!r}")
        return value is True

    def names(self, column: str) -> list[str]:
        """Return a list of names, which must not be empty."""
        value = self._row.get(column)
        if is_empty(value):
            raise InputError(self.place(column), "is empty, a block needs at least one")
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise InputError(self.place(column), f"must be a list of names, got {value!r}")
        return [str(name) for name in value]


def _rows(table: Sequence[Row], name: str) -> list[Cells]:
    filled = ((number, row) for number, row in enumerate(table, 1) if not all(map(is_empty, row.values())))
    return [Cells(row, f"{name}, row {number}") for number, row in filled]


def is_empty(value: object) -> bool:
    """Return whether a cell is empty."""
    if value is None or value == "" or (isinstance(value, float) and math.isnan(value)):
        return True
    return isinstance(value, Sequence) and not value


def _device(cells: Cells) -> PlanDevice:
    capacity = None if cells.empty("capacity") else cells.integer("capacity", 0)
    return PlanDevice(cells.text("device"), capacity, cells.integer("static", 0, default=0))


def _block(cells: Cells, index: dict[str, int], labels: Mapping[str, str]) -> Block:
    kind = cells.text("kind")
    if kind not in tuple(BlockKind):
        raise InputError(cells.place("kind"), f"must be one of {', '.join(BlockKind)}, got {kind!r}")
    names = cells.names("devices")
    unknown = [name for name in names if name not in index]
    if unknown:
        raise InputError(cells.place("devices"), f"unknown device {unknown[0]!r}")
    return Block(
        cells.text("block"),
        BlockKind(kind),
        tuple(index[name] for name in names),
        cells.integer("duration", 1),
        cells.integer("memory", -(2**53), default=0),
        labels.get(cells.text("block"), ""),
    )


def _dependency(cells: Cells) -> Dependency:
    return Dependency(cells.text("from"), cells.text("to"), cells.integer("lag", 0, default=0))

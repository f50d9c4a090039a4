"""Plans as tables: they read back, and every wrong cell gives one sentence with its row and column."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers.seeds import one_in

from tessel_core.errors import InputError
from tessel_core.formats.tables import PlanTables, plan_of, tables_of
from tessel_core.networks import build_shape
from tessel_core.samples import list_samples, load_sample

PLAN = build_shape("m-shape")


@pytest.mark.parametrize("name", one_in(3, [sample.name for sample in list_samples()]))
def test_every_sample_survives_its_tables(name: str) -> None:
    plan = load_sample(name)
    assert plan_of(tables_of(plan)) == plan


def test_empty_rows_are_no_rows() -> None:
    tables = tables_of(PLAN)
    gap = {"block": None, "kind": None, "devices": [], "duration": None, "memory": float("nan")}
    assert plan_of(replace(tables, blocks=(*tables.blocks, gap))) == PLAN


def test_optional_cells_may_be_empty_and_whole_floats_are_integers() -> None:
    tables = tables_of(PLAN)
    devices = tuple({**row, "capacity": None, "static": None} for row in tables.devices)
    blocks = tuple({**row, "duration": float(str(row["duration"]))} for row in tables.blocks)
    assert plan_of(replace(tables, devices=devices, blocks=blocks)) == PLAN.with_capacity(None)


def changed(table: str, row: int, column: str, value: Any) -> PlanTables:
    tables = tables_of(PLAN)
    rows = list(getattr(tables, table))
    rows[row] = {**rows[row], column: value}
    return replace(tables, **{table: tuple(rows)})


@pytest.mark.parametrize(
    ("table", "row", "column", "value", "complaint"),
    [
        ("blocks", 0, "duration", 0, "blocks, row 1, column duration: must be at least 1, got 0"),
        ("blocks", 1, "duration", None, "blocks, row 2, column duration: is empty"),
        ("blocks", 1, "duration", 1.5, "blocks, row 2, column duration: must be an integer, got 1.5"),
        ("blocks", 1, "duration", True, "blocks, row 2, column duration: must be an integer, got true"),
        ("blocks", 1, "duration", float("inf"), "blocks, row 2, column duration: must be an integer, got inf"),
        ("blocks", 1, "duration", 2**60, "blocks, row 2, column duration: must be at most 2^53 in magnitude"),
        ("blocks", 2, "block", " ", "blocks, row 3, column block: is empty"),
        ("blocks", 2, "block", "F0", "blocks: duplicate name 'F0'"),
        ("blocks", 2, "kind", "sideways", "blocks, row 3, column kind: must be one of"),
        ("blocks", 2, "devices", ["gpu9"], "blocks, row 3, column devices: unknown device 'gpu9'"),
        ("blocks", 2, "devices", [], "blocks, row 3, column devices: is empty"),
        ("blocks", 2, "devices", "gpu0", "blocks, row 3, column devices: must be a list of names"),
        ("blocks", 2, "devices", ["gpu0", "gpu0"], "names a device twice"),
        ("blocks", 1, "memory", 2, "device gpu0: the memory of one micro-batch's blocks must sum to 0, it sums to 1"),
        ("dependencies", 0, "from", "X", "unknown block 'X'"),
        ("dependencies", 0, "lag", -1, "dependencies, row 1, column lag: must be at least 0, got -1"),
        ("dependencies", 0, "from", "B0", "they form a cycle"),
        ("devices", 0, "device", "", "devices, row 1, column device: is empty"),
        ("devices", 0, "capacity", -1, "devices, row 1, column capacity: must be at least 0, got -1"),
        ("devices", 3, "device", "gpu0", "column devices: unknown device 'gpu3'"),
    ],
)  # fmt: skip
def test_a_wrong_cell_is_named(table: str, row: int, column: str, value: Any, complaint: str) -> None:
    with pytest.raises(InputError) as error:
        plan_of(changed(table, row, column, value))
    assert complaint in str(error.value)
    assert "\n" not in str(error.value)


def test_no_rows_at_all() -> None:
    with pytest.raises(InputError, match="devices: the plan has none"):
        plan_of(replace(tables_of(PLAN), devices=(), blocks=(), dependencies=()))

"""Price tags of a schedule: each change alone is solved, and its gain is the difference."""

from __future__ import annotations

import pytest

from tessel_core.editing.price_tags import price_tags
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule
from tessel_core.workbench.messages.price_tags import price_rows


def test_one_more_slot_helps_where_memory_binds_and_nowhere_else() -> None:
    plan = load_sample("v-shape-4").with_capacity(3)
    base = solve_schedule("tessel", plan, 8)
    found = {name: solve_schedule("tessel", each, 8) for name, each in price_tags(plan).items()}
    rows = {row["Change"]: row for row in price_rows(base, found)}
    assert rows["1 slot more on gpu0"] == {
        "Change": "1 slot more on gpu0",
        "Makespan": "44 steps",
        "Saves": "8 steps (15.4%)",
        "At most": "8 steps (15.4%)",
    }
    assert rows["1 slot more on gpu3"]["Saves"] == rows["1 slot more on gpu3"]["At most"] == "nothing"
    assert [row["Change"] for row in price_rows(base, found)][-1].startswith("1 slot more on gpu")


@pytest.mark.parametrize("sample", ["gpt-6.7b-v-4", "gpt-6.7b-split-v-8", "gpt-1m-vocab-v-4"])
def test_a_layer_that_moves_takes_its_time_memory_and_weights_along(sample: str) -> None:
    plan = load_sample(sample)
    moved = {name: each for name, each in price_tags(plan).items() if name.startswith("a layer moved")}
    assert "a layer moved from F0 to F1" in moved
    for each in moved.values():
        assert sum(each.work) == sum(plan.work)
        assert sum(d.static_memory for d in each.devices) == sum(d.static_memory for d in plan.devices)
        assert sorted(abs(a - b) for a, b in zip(each.work, plan.work, strict=True))[:-2] == [0] * (len(plan.work) - 2)


def test_of_real_networks_as_many_gigabytes_are_sold_as_one_more_micro_batch_takes() -> None:
    plan = load_sample("gpt-6.7b-v-4")
    for name, each in price_tags(plan).items():
        if " more on gpu" in name:
            d = next(d for d, device in enumerate(each.devices) if device != plan.devices[d])
            more = (each.devices[d].memory_capacity or 0) - (plan.devices[d].memory_capacity or 0)
            taken = sum(max(0, plan.blocks[b].memory) for b in plan.blocks_on[d])
            assert more % 10**9 == 0
            assert 0 <= more - taken < 10**9


def test_links_are_sold_where_there_are_some() -> None:
    assert "links twice as fast" in price_tags(load_sample("gpt-6.7b-v-4"))
    assert "links twice as fast" not in price_tags(load_sample("v-shape-4"))


def test_what_is_not_known_yet_stands_last() -> None:
    plan = load_sample("v-shape-4").with_capacity(3)
    base = solve_schedule("1f1b", plan.with_capacity(4), 8)
    rows = price_rows(base, {"first": None, "second": base})
    assert [row["Change"] for row in rows] == ["second", "first"]
    assert rows[1]["Saves"] == "–"

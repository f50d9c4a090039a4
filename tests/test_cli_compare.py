"""`tessel compare` gives the same answers as single searches, in one table."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from helpers.terminal import Tessel, terminal

from tessel_core.cli import solving
from tessel_core.control import Control
from tessel_core.inspection import Jitter, jitter, under_jitter
from tessel_core.samples import load_sample
from tessel_core.scheduling import SCHEDULERS, Answer, Comparison, Question, compare, solve_schedule
from tessel_core.scheduling.tessel import TesselConfig

SAMPLES = Path(__file__).resolve().parent.parent / "sample_models"


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tessel:
    return terminal(monkeypatch, capsys)


def plan(name: str) -> Path:
    return SAMPLES / f"{name}.json"


def test_it_says_of_each_pair_what_schedule_says(tessel) -> None:
    names = ["1f1b", "1f1b+", "gpipe", "sequential"]
    plans = ["v-shape-4", "m-shape-4"]
    words = ["--schedulers", ",".join(names), "--micro-batches", 12, "--json"]
    code, out, _ = tessel("compare", *map(plan, plans), *words)
    assert code == 0
    rows = json.loads(out)
    assert [(row["plan"], row["scheduler"]) for row in rows] == [(each, name) for each in plans for name in names]
    for row in rows:
        words = ["--scheduler", row["scheduler"], "--micro-batches", 12, "--json"]
        code, out, err = tessel("schedule", plan(row["plan"]), *words)
        if code == 2:
            assert row["status"] is None
            assert row["reason"] in err
            continue
        alone = json.loads(out)
        assert {key: row[key] for key in alone if key != "wall_s"} == {k: v for k, v in alone.items() if k != "wall_s"}


def test_ratios_are_to_the_first_known_schedule_or_to_the_one_that_is_named(tessel) -> None:
    words = ["compare", plan("v-shape-4"), "--schedulers", "sequential,1f1b", "--micro-batches", 8, "--json"]
    rows = json.loads(tessel(*words)[1])
    assert [row["reference"] for row in rows] == [False, True]
    assert [row["makespan_ratio"] for row in rows] == [44 / 128, 1.0]
    rows = json.loads(tessel(*words, "--reference", 1)[1])
    assert [row["makespan_ratio"] for row in rows] == [1.0, 128 / 44]


def test_without_names_every_scheduler_that_suits_a_plan_is_taken(tessel) -> None:
    rows = json.loads(tessel("compare", plan("v-shape-4-inference"), "--micro-batches", 4, "--json")[1])
    assert "tessel" in [row["scheduler"] for row in rows]
    for row in rows:
        assert row["status"] is not None, "all that are taken apply"
        assert row["scheduler"] in SCHEDULERS


def test_the_table_names_every_pair_and_the_reasons(tessel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    code, out, _ = tessel("compare", plan("v-shape-4"), "--schedulers", "1f1b,gpipe", "--micro-batches", 8)
    assert code == 0
    assert "1F1B, v-shape-4 (reference)" in out
    assert "2: does not fit: the order exceeds the memory of gpu0–gpu3 by 4 slots each" in out


def test_jitter_adds_quantiles_and_chances(tessel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = ["compare", plan("v-shape-4"), "--schedulers", "1f1b,1f1b+,sequential", "--micro-batches", 8]
    words += ["--jitter", 0.2, "--jitter-of", "device", "--draws", 300, "--seed", 5]
    rows = json.loads(tessel(*words, "--json")[1])
    schedules = [solve_schedule(name, load_sample("v-shape-4"), 8).solution for name in ("1f1b", "sequential")]
    wanted = under_jitter(schedules, Jitter(0.2, "device", 300, 5))
    for row, each in zip((rows[0], rows[2]), wanted, strict=True):
        assert row["jitter"] == {"spread": 0.2, "of": "device", "draws": 300, "seed": 5}
        assert row["order_makespan"] == row["makespan"]
        found = [row[key] for key in ("mean", "p50", "p95", "chance_to_win")]
        assert found == [each.mean, each.p50, each.p95, each.chance]
    assert rows[1]["p50"] is None
    out = tessel(*words)[1]
    assert "Chance" in out
    assert f"{wanted[0].p95:.4g}" in out
    assert "300 draws" in out
    assert "p95" not in tessel(*words[:6])[1]


def test_draws_are_as_many_as_large_schedules_allow(tessel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Here a schedule of 40 runs counts as too large for 10,000 draws, so that the test is quick."""
    monkeypatch.setattr(jitter, "_MAX_RUNS_DRAWN", 400_000)
    words = ["compare", plan("v-shape-4"), "--schedulers", "1f1b", "--micro-batches", 100, "--jitter", 0.1]
    assert "There are fewer than 10,000 draws, because the schedules have 800 runs in all." in tessel(*words)[1]
    assert json.loads(tessel(*words, "--json")[1])[0]["jitter"]["draws"] == 500


def test_after_control_c_no_other_pair_begins(tessel, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cancelled(Control):
        def __init__(self, *arguments: Any, **named: Any) -> None:
            super().__init__(*arguments, **named)
            made.append(self)
            if len(made) == 2:
                self.cancel()

    made: list[Control] = []
    monkeypatch.setattr(solving, "Control", Cancelled)
    monkeypatch.setenv("COLUMNS", "200")
    command = ["compare", plan("v-shape-4"), plan("m-shape-4"), "--schedulers", "1f1b,tessel,sequential"]
    code, out, _ = tessel(*command)
    assert (code, len(made)) == (0, 2)
    assert re.findall(r"^(\d) .*not started", out, re.MULTILINE) == ["3", "4", "5", "6"]
    assert "6: cancelled before it began" in out
    made.clear()
    rows = json.loads(tessel(*command, "--json")[1])
    assert [(row["status"], row["reason"]) for row in rows[2:]] == [(None, "cancelled before it began")] * 4


def test_a_search_that_was_cancelled_says_so_in_the_table() -> None:
    control = Control()
    control.cancel()
    pair = Question("tessel", load_sample("nn-shape-4"), 8, TesselConfig())
    rows = compare(Comparison((pair,)), [Answer.to(pair, control)])
    assert [row.outcome for row in rows] == ["cancelled"]


def test_nothing_that_keeps_the_rules_ends_with_1(tessel) -> None:
    code, out, _ = tessel("compare", plan("v-shape-4"), "--schedulers", "gpipe", "--micro-batches", 8, "--json")
    assert code == 1
    assert json.loads(out)[0]["status"] == "INFEASIBLE"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--schedulers", "foo"], "error: --schedulers: 'foo' is not known"),
        (["--rule", "zzz"], "error: --rule: must be one of advanced, "),
        (["--schedulers", ","], "error: --schedulers: is empty"),
        ([plan("gpt-1m-vocab-v-4")], "one time axis needs one unit"),
        ([plan("v-shape-4")], "is already in the list"),
        (["--schedulers", "1f1b", "--reference", "2"], "error: comparison: has no pair 2 to compare with"),
        (["no-such-file.json"], "no-such-file.json"),
        (["--jitter", "2"], "error: --jitter: must be between 0 and 1, got 2.0"),
        (["--jitter", "0.1", "--jitter-of", "stage"], "error: --jitter-of: must be one of run, device, got 'stage'"),
        (["--jitter", "0.1", "--draws", "0"], "error: --draws: must be between 1 and 1000000, got 0"),
        (["--draws", "100"], "error: --draws: needs --jitter SPREAD"),
    ],
)
def test_bad_input_is_one_line(tessel, words: list[object], error: str) -> None:
    code, out, err = tessel("compare", plan("v-shape-4"), *words, "--micro-batches", 4)
    assert code == 2
    assert out == ""
    assert error in err
    assert err.count("\n") == 1


def test_a_network_stands_under_each_schedule_on_the_form_that_it_needs(
    tessel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    words = ["compare", "--network", "gpt-6.7b", "--devices", 4, "--micro-batch-size", 4, "--memory", 10**11]
    words += ["--schedulers", "1f1b,1f1b+,zb-v,chimera", "--micro-batches", 8]
    rows = json.loads(tessel(*words, "--json")[1])
    assert [(row["plan"].removeprefix("gpt-6.7b-"), row["micro_batches"]) for row in rows] == [
        ("v-4", 8),
        ("zb-v-4", 8),
        ("x-4", 4),
        ("sharded-4", 8),
    ]
    assert {row["scheduler"] for row in rows} == {"1f1b", "zb-v", "chimera", "1f1b+"}
    code, out, err = tessel(*words)
    assert (code, err) == (0, "")
    assert "sample" in out
    assert re.search(r"gpt-6.7b-sharded-4 has \S+ % (more|less) work per sample than gpt-6.7b-v-4", out)


def test_a_network_s_missing_forms_are_noted(tessel) -> None:
    words = ["compare", "--network", "gpt-175b", "--devices", 4, "--schedulers", "1f1b", "--micro-batches", 4]
    code, _, err = tessel(*words)
    assert code == 0
    assert [line.split(":")[1:3] for line in err.splitlines()] == [
        [" gpt-175b", " Without the form Sharded vocabulary"],
        [" gpt-175b", " No form suits 1F1B+."],
    ]


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ([], "error: compare: needs either plans or --network"),
        ([plan("v-shape-4"), "--network", "mt5-xxl"], "error: compare: needs either plans or --network"),
        (["--network", "foo"], "error: --network: 'foo' is not known"),
        (
            ["--network", "mt5-xxl", "--memory", 150],
            "error: --memory: must be between 1,000,000,000 and 10,000,000,000,000 bytes with --network, got 150",
        ),
        (["--network", "mt5-xxl", "--devices", 65], "error: --devices: must be between 2 and 64, got 65"),
        (
            ["--network", "mt5-xxl", "--schedulers", "list-scheduling"],
            "none of list-scheduling applies to mt5-xxl",
        ),
    ],
)
def test_a_network_that_cannot_be_asked_about_is_one_line(tessel, words: list[object], error: str) -> None:
    code, out, err = tessel("compare", *words)
    assert (code, out) == (2, "")
    assert error in err

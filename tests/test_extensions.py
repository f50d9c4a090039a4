"""Entries of other packages appear in every table and on the command line, under the referee.

Broken ones are skipped.
"""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.packages import as_in_a_new_process, install, install_example

from tessel_core.errors import InputError
from tessel_core.exports import EXPORTS
from tessel_core.samples import load_sample
from tessel_core.scheduling import SCHEDULERS, solve_schedule

_TABLES = """
import json
from tessel_core.costs.devices import DEVICE_KINDS
from tessel_core.exports import EXPORTS
from tessel_core.networks.graphs.table import GRAPHS
from tessel_core.placement import PLACERS
from tessel_core.scheduling import SCHEDULERS
tables = {"schedulers": SCHEDULERS, "placers": PLACERS, "networks": GRAPHS, "exports": EXPORTS, "devices": DEVICE_KINDS}
print(json.dumps({f"tessel.{name}": list(table.added) for name, table in tables.items()}))
"""
_COMMANDS = """
import sys
from tessel_core import cli
for words in sys.argv[1:]:
    sys.argv = ["tessel", *words.split()]
    try:
        cli.main()
    except SystemExit as ended:
        print(ended.code)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which the example package is installed."""
    folder = tmp_path_factory.mktemp("site")
    install_example(folder)
    return folder


def run(site: Path, folder: Path, script: str, *words: str) -> str:
    """Return the output of a new Python process that finds the packages of `site`."""
    paths = os.pathsep.join([str(site), str(Path(__file__).resolve().parents[1])])
    command, there = [sys.executable, "-c", script, *words], {**os.environ, "PYTHONPATH": paths}
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env=there, cwd=folder)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def test_every_entry_of_the_example_is_in_its_table(tmp_path: Path) -> None:
    points = install_example(tmp_path / "site")
    found = json.loads(run(tmp_path / "site", tmp_path, _TABLES))
    assert found == {group: list(names) for group, names in points.items()}


def test_the_command_line_uses_every_entry(site: Path, tmp_path: Path) -> None:
    commands = [
        "schedule v-shape-4 --scheduler longest-queue --late-first --memory 64 --out found.json --json",
        "export found.json --out found.md --json",
        "graph bottleneck --set layers=4 --out graph.json --json",
        "place graph.json --placer equal-weights --mesh l40s-4 --json",
        "simulate bottleneck-8 --mesh l40s-4 --pipeline 2 --micro-batches 4 --json",
        "check found.json",
    ]
    said = run(site, tmp_path, _COMMANDS, *commands).splitlines()
    assert said[1::2] == ["0"] * len(commands)
    documents = [json.loads(line) for line in said[:-2:2]]
    schedule, exported, graph, placed, simulated = documents
    assert schedule["status"] in ("FEASIBLE", "PROVED_OPTIMAL")
    assert exported["format"] == "markdown"
    assert tmp_path.joinpath("found.md").read_text().startswith("| device | busy (step) |")
    assert graph["name"] == "bottleneck"
    assert list(placed["loads"]) == ["gpu0", "gpu1", "gpu2", "gpu3"]
    assert placed["objective"] >= placed["bound"] > 0
    assert simulated["latency_s"] > 0
    assert said[-2] == "found.json: valid"


BROKEN = {
    "absent:ENTRY": "ModuleNotFoundError: No module named 'absent'",
    "parts:ABSENT": "AttributeError: module 'parts' has no attribute 'ABSENT'",
    "parts:NUMBER": "type: must be Scheduler, got int",
    "parts:TAKEN": "name: 'gpipe' is taken",
    "parts:BARE": "depth: is a field without an `option`",
    "stops:ENTRY": "SystemExit: 3",
}
_PARTS = """
from dataclasses import dataclass, replace
from tessel_core.scheduling import SCHEDULERS, Scheduler
from tessel_core.scheduling.baselines.gpipe import GPIPE

@dataclass(frozen=True)
class Bare:
    depth: int = 3

def fail(*given):
    raise ZeroDivisionError("by nothing")

def all_at_once(plan, micro_batches, config, control):
    report = GPIPE.solve(plan, micro_batches, config, control)
    return replace(report, solution=report.solution.from_starts(plan, report.solution.starts * 0))

NUMBER = 3
TAKEN = Scheduler("gpipe", "Mine", "", fail)
BARE = Scheduler("bare", "Bare", "", fail, Bare)
FAILS = Scheduler("fails", "Fails", "", fail)
REFUSES = Scheduler("refuses", "Refuses", "", fail, objection=fail)
CHEATS = Scheduler("cheats", "Cheats", "", all_at_once)
ANSWERS_NOTHING = Scheduler("answers-nothing", "Answers nothing", "", lambda *given: None)
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with modules that a package may name. They are removed from `sys.modules` at the end."""
    tmp_path.joinpath("parts.py").write_text(_PARTS)
    tmp_path.joinpath("stops.py").write_text("raise SystemExit(3)")
    monkeypatch.setitem(sys.modules, "parts", None)
    monkeypatch.delitem(sys.modules, "parts")
    return tmp_path


@pytest.mark.parametrize(("place", "why"), BROKEN.items(), ids=list(BROKEN))
def test_a_broken_entry_is_left_out_with_one_sentence(
    place: str, why: str, modules: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    points = {"tessel.schedulers": {"broken": place, "works": "parts:FAILS"}}
    install(modules, "their-package", points)
    with caplog.at_level(logging.WARNING, "tessel_core"):
        as_in_a_new_process(monkeypatch, SCHEDULERS, modules)
    assert list(SCHEDULERS.added) == ["fails"]
    said = f"the scheduler broken of the package their-package is left out: {why}"
    assert caplog.messages == [said]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("fails", "failed with ZeroDivisionError: by nothing"),
        ("refuses", "does not apply to plan v-shape-4: the scheduler refuses of the package theirs failed with"),
        ("cheats", "the referee refuses its answer: cheats returned an invalid schedule"),
        ("answers-nothing", "the referee refuses its answer"),
    ],
)
def test_a_solver_that_fails_later_is_named_with_its_package(
    name: str, why: str, modules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(modules, "theirs", {"tessel.schedulers": {name: f"parts:{name.replace('-', '_').upper()}"}})
    as_in_a_new_process(monkeypatch, SCHEDULERS, modules)
    with pytest.raises(InputError, match=f"the scheduler {name} of the package theirs") as refused:
        solve_schedule(name, load_sample("v-shape-4").with_capacity(None), 4)
    assert why in str(refused.value)


def test_the_help_of_the_command_line_loads_no_package(site: Path, tmp_path: Path) -> None:
    script = "import sys\nfrom tessel_core.cli.command import app\ntry: app(['--help'])\nexcept SystemExit: pass\n"
    said = run(site, tmp_path, f"{script}print('tessel_example' in sys.modules)")
    assert said.splitlines()[-1] == "False"


def test_entries_of_ours_are_found_without_a_search_for_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(EXPORTS.__dict__, "added", raising=False)
    assert EXPORTS["csv"].suffix == ".csv"
    assert "added" not in EXPORTS.__dict__

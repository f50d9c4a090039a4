"""`tessel export`: every kind of file, stdout, one line per error, and no file overwritten by mistake."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from helpers.stores import simple_workspace

from tessel_core import cli
from tessel_core.exports import EXPORTS
from tessel_core.formats import plan_text, read_schedule, schedule_text, workspace_text
from tessel_core.formats.tessel_json import tessel_json_text
from tessel_core.samples import load_sample, sample_text
from tessel_core.scheduling import solve_schedule


@dataclass(frozen=True)
class Ended:
    """Exit code and output of a command."""

    code: int
    out: bytes
    err: str


Tessel = Callable[..., Ended]
MADE = [name for name in EXPORTS if name not in ("png", "svg", "megatron")]
"""Exports that need neither an optional extra nor layers."""


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> Tessel:
    """Return a function that runs a command in a folder with test files.

    They are a plan, its schedule in two formats, and a broken schedule.
    """
    monkeypatch.chdir(tmp_path)
    plan = load_sample("v-shape-4")
    report = solve_schedule("1f1b", plan, 6)
    assert report.solution is not None
    text = schedule_text(report.solution, report)
    broken = json.loads(text)
    broken["runs"][-1]["start"] -= 4
    Path("v.json").write_text(plan_text(plan), encoding="utf-8")
    Path("s.json").write_text(text, encoding="utf-8")
    Path("broken.json").write_text(json.dumps(broken), encoding="utf-8")
    Path("foreign.json").write_text(tessel_json_text(report.solution), encoding="utf-8")

    def run(*words: str) -> Ended:
        monkeypatch.setattr(sys, "argv", ["tessel", *words])
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capfdbinary.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, said.out, said.err.decode())

    return run


def files() -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in Path().iterdir()}


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("source", ["s.json", "foreign.json"])
def test_every_kind_is_written_by_name_and_by_suffix_and_to_stdout(tessel: Tessel, name: str, source: str) -> None:
    export = EXPORTS[name]
    out = f"mine{export.suffix}"
    said = tessel("export", source, "--out", out, "--json")
    assert (said.code, said.err) == (0, "")
    written = Path(out).read_bytes()
    assert json.loads(said.out) == {"file": out, "format": name, "bytes": len(written)}
    assert said.out.count(b"\n") == 1
    assert tessel("export", source, "--to", name, "--out", "other").code == 0
    assert Path("other").read_bytes() == written
    printed = tessel("export", source, "--to", name)
    assert (printed.code, printed.out, printed.err) == (0, written, "")


def test_people_are_told_in_one_line(tessel: Tessel) -> None:
    said = tessel("export", "s.json", "--out", "mine.csv")
    assert said.out.decode() == f"mine.csv: CSV, {len(Path('mine.csv').read_bytes()):,} bytes\n"


def test_what_is_exported_is_judged_by_us_not_by_its_file(tessel: Tessel) -> None:
    """The file claims less than is true: this 1F1B schedule is the shortest."""
    modest = json.loads(Path("s.json").read_text())
    modest["report"] |= {"status": "FEASIBLE", "bound": 1}
    Path("modest.json").write_text(json.dumps(modest))
    kept = read_schedule(tessel("export", "modest.json", "--to", "tessel-schedule").out).report
    assert kept is not None
    assert (kept.status, kept.objective, kept.bound) == ("PROVED_OPTIMAL", 36, 36)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["s.json"], "error: tessel export: needs --out FILE, or --to with one of tessel-schedule, "),
        (["s.json", "--to", "gif", "--out", "s.gif"], "error: --to: 'gif' is not known, choose from tessel-schedule, "),
        (["s.json", "--out", "mine.json"], "error: mine.json: has no known suffix; give --to, "),
        (["s.json", "--to", "csv", "--json"], "error: --json: describes the written file, so it needs --out"),
        (["s.json", "--to", "png"], "error: --out: is missing: png is a binary format and is not printed to stdout"),
        (["s.json", "--to", "csv", "--out", "s.json"], "error: s.json: is the input file and would be "),
        (["s.json", "--to", "csv", "--out", "again/../s.json"], "error: again/../s.json: is the input file"),
        (["s.json", "--to", "csv", "--out", "link.json"], "error: link.json: is the input file"),
        (["s.json", "--to", "csv", "--out", "nowhere/s.csv"], "error: nowhere/s.csv: cannot be written: "),
        (["s.json", "--to", "csv", "--out", "."], "error: .: is a folder, not a file"),
        (["v.json", "--to", "csv"], "error: v.json: is a plan, not a schedule; `tessel schedule` with --out writes a"),
        (["graph.json", "--to", "csv"], "error: graph.json: is an operator graph, but a schedule is needed"),
        (["work.json", "--to", "csv"], "error: work.json: is a workspace, but a schedule is needed"),
        (["missing.json", "--to", "csv"], "error: missing.json: No such file"),
        (["broken.json", "--to", "csv"], "error: broken.json: device gpu0, block B0 of micro-batch 5: starts at "),
        (
            ["split.json", "--to", "tessel"],
            "error: export tessel: supports only forward and backward blocks, but block ",
        ),
        ([], "error: tessel export: Missing argument"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_and_usage_are_one_line_exit_code_2_and_no_file(tessel: Tessel, words: list[str], why: str) -> None:
    os.mkdir("again")
    os.symlink("s.json", "link.json")
    split = solve_schedule("sequential", load_sample("split-v-4"), 2)
    assert split.solution is not None
    Path("split.json").write_text(schedule_text(split.solution, split), encoding="utf-8")
    Path("graph.json").write_text(sample_text("gpt-175b-training"), encoding="utf-8")
    Path("work.json").write_text(workspace_text(simple_workspace(load_sample("v-shape-4"))), encoding="utf-8")
    before = {path.name for path in Path().iterdir()}
    ended = tessel("export", *words)
    assert (ended.code, ended.out) == (2, b"")
    assert ended.err.startswith(why)
    assert ended.err.count("\n") == 1
    assert {path.name for path in Path().iterdir()} == before


def test_a_broken_schedule_names_the_rule(tessel: Tessel) -> None:
    assert tessel("export", "broken.json", "--to", "csv").err.endswith("(rule: no overlap)\n")


def test_a_schedule_is_not_written_over_the_plan_it_is_made_from(tessel: Tessel) -> None:
    before = files()
    for source in ("v.json", "s.json"):
        ended = tessel("schedule", source, "--scheduler", "gpipe", "--micro-batches", "2", "--out", source)
        assert (ended.code, ended.out) == (2, b"")
        assert ended.err == f"error: {source}: is the input file and would be overwritten; choose another name\n"
    assert files() == before


def test_an_earlier_export_is_replaced(tessel: Tessel) -> None:
    Path("mine.csv").write_text("old")
    assert tessel("export", "s.json", "--out", "mine.csv").code == 0
    assert Path("mine.csv").read_text().startswith("device,block,")


def test_help_follows_the_table(tessel: Tessel) -> None:
    said = " ".join(tessel("export", "--help").out.decode().replace("│", " ").split())
    assert ", ".join(EXPORTS) in said
    assert ", ".join(export.suffix for export in EXPORTS.values()) in said

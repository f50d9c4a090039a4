"""What README and guide tell people to type works, and says what they say it does."""

import re
import shlex
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from tessel_core import cli
from tessel_core.exports import EXPORTS
from tessel_core.networks import SHAPES, build_shape
from tessel_core.scheduling import BASELINES, solve_schedule

ROOT = Path(__file__).parent.parent
README = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/guide.md"))
"""What people are told, and where that goes on."""
DOCUMENTS = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md")))
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, re.DOTALL)


def commands() -> list[list[str]]:
    """Every `.venv/bin/tessel …` line of the shell blocks, in order."""
    lines = [line for language, text in BLOCKS if language == "sh" for line in text.splitlines()]
    return [shlex.split(line)[1:] for line in lines if line.startswith(".venv/bin/tessel ")]


def runs_a_schedule(arguments: list[str]) -> bool:
    """Which needs PyTorch."""
    return arguments[0] == "run" and arguments[1] in ("tight.json", "zb-v-4")


def example(kind: str) -> str:
    """The one file of that format that the README shows."""
    (found,) = [text for language, text in BLOCKS if language == "json" and f'"{kind}"' in text]
    return found


def test_the_commands_of_the_tour_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "network.json").write_text(example("tessel-graph"), encoding="utf-8")
    (tmp_path / "sample_models").symlink_to(ROOT / "sample_models")
    monkeypatch.chdir(tmp_path)
    printed = []
    for arguments in (each for each in commands() if not runs_a_schedule(each)):
        if arguments[0] == "run":
            arguments += ["--engine", "numpy"]  # as it is without PyTorch
        monkeypatch.setattr(sys, "argv", ["tessel", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 0, arguments
        printed.append(capsys.readouterr().out)
    listing, searched, published, tight, verdict, compared, page, trace, table, hangs, placed, chain, *road = printed
    assert "m-shape-4" in listing
    assert re.search(r"Time per micro-batch\s+6 steps\s+bound 6 steps", searched)
    assert re.search(r"Time per micro-batch\s+8 steps", published)
    assert re.search(r"5\.333 steps\s+bound 5\.333 steps, proved", tight)
    assert "The steady schedule repeats every 3 micro-batches" in tight
    assert verdict == "tight.json: valid\n"
    assert re.search(r"1F1B\+,.*found +\S+ +0\.\d+ +8 ", compared), (
        "slower than the 1F1B of the V, 8 steps a micro-batch"
    )
    assert page.startswith("tight.html: HTML report, ")
    assert trace.startswith("tight.trace.json: Chrome trace, ")
    assert table.startswith("device,block,")
    assert hangs.startswith("tight.json: valid\n  proceeds: ")
    assert "Largest load 4 ms, proved optimal" in placed
    assert chain == "network.json: valid\nplaced.json: valid\n"
    graph, on_mesh, plan, scheduled, step, lined_up, simulated, swept, sharded, ran = road
    assert graph.startswith("gpt2-small")
    assert "proved optimal" in on_mesh
    assert "16 blocks on 8 devices" in plan
    assert "roved optimal" in scheduled
    assert re.search(r"transfers that wait for each other +0 ns", step)
    assert all(f"gpt-175b-{form}-4" in lined_up for form in ("v", "split-v", "zb-v", "split-x"))
    assert "ms" in simulated or "µs" in simulated
    assert "feasible" in swept
    assert "tokens per second and device" in sharded
    assert ran.startswith("gpt-4x64, 4 devices, ")


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_the_schedules_of_the_guide_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = []
    tight = next(each for each in commands() if "tight.json" in each and each[0] == "schedule")
    for arguments in [tight, *filter(runs_a_schedule, commands())]:
        monkeypatch.setattr(sys, "argv", ["tessel", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        assert ended.value.code == 0, arguments
        printed.append(capsys.readouterr().out)
    _, toy, measured, published = printed
    assert "All losses and gradients equal those of one process" in toy
    assert "predicted from an earlier run" in measured
    assert published.startswith("zb-v-4: 8 micro-batches on 4 ranks, a toy network")


def test_the_readme_names_every_export_with_its_suffix() -> None:
    rows = [line.split("|")[1:3] for line in README.splitlines() if line.startswith("| `")]
    told = {pair for names, suffixes in rows for pair in zip(names.split(), suffixes.split(), strict=False)}
    assert {(f"`{export.name}`", f"`{export.suffix}`") for export in EXPORTS.values()} <= told


def test_the_plan_in_the_readme_can_be_scheduled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan.json").write_text(example("tessel-plan"), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["tessel", "schedule", str(tmp_path / "plan.json"), "--micro-batches", "4"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0


SHAPES_OF_THE_TABLE = {"V": "v-shape", "M": "m-shape", "Loop": "loop", "X": "x-shape", "split V": "split-v"}
SHAPES_OF_THE_TABLE |= {"ZB-V": "zb-v", "all forward first": "v-shape", "any": "v-shape"}
SLOTS_PER_ACTIVATION = {"loop": 2, "zb-v": 4}


def rows_of_published_schedules() -> list[list[str]]:
    """The cells of each row of the table, without backticks."""
    table = README.split("### The published schedules")[1].split("\n## ")[0]
    return [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in table.splitlines() if line[:3] == "| `"]


@pytest.mark.parametrize("row", rows_of_published_schedules(), ids=lambda row: row[0])
def test_the_published_schedules_idle_and_hold_what_the_table_says(row: list[str]) -> None:
    name, _, shapes, bubble, steady, held = row
    shape = SHAPES["split-x" if name == "dualpipe" else SHAPES_OF_THE_TABLE[shapes.split(",")[0]]]
    unsplit = "weight" in shape.unused
    measured = []
    for devices in (4, 8):
        times = replace(shape.defaults, devices=devices, backward=2 if unsplit else 1, capacity=1000)
        measured.append(solve_schedule(name, build_shape(shape.name, times), 32))
    assert bubble == ", ".join(f"{report.bubble_rate:.1%}".replace("%", " %") for report in measured)
    rates = {report.steady_bubble_rate for report in measured if report.steady_bubble_rate is not None}
    told = ", ".join(f"{rate:.1%}".replace("%", " %") if rate else "0" for rate in sorted(rates))
    assert steady == (told or "nothing repeats")
    slots = [max(report.peak_memory or ()) / SLOTS_PER_ACTIVATION.get(shape.name, 1) for report in measured]
    assert held == ", ".join(f"{each:g}" for each in slots)


def test_the_table_names_every_published_schedule() -> None:
    assert [row[0] for row in rows_of_published_schedules()] == list(BASELINES)


@cache
def modules() -> list[str]:
    """The paths of all modules that are ours."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return [
        path.as_posix() for path in (*ROOT.glob("*.py"), *(path for each in folders for path in each.rglob("*.py")))
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_module_that_a_document_names_exists(document: Path) -> None:
    named = set(re.findall(r"`([\w/]+\.py)`", document.read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in modules())] == []

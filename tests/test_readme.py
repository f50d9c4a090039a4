"""Commands and examples in the documents work, and print the documented output."""

import doctest
import re
import shlex
import sys
import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tessel_core import cli
from tessel_core.cli.verbs import VERBS
from tessel_core.exports import EXPORTS
from tessel_core.networks import SHAPES, build_shape
from tessel_core.scheduling import BASELINES, solve_schedule

ROOT = Path(__file__).parent.parent
PAGES = (
    "README.md",
    "docs/tutorials/first_schedule.md",
    "docs/tutorials/your_own_model.md",
    "docs/tutorials/import_a_trace.md",
    "docs/how_to/place_a_network.md",
    "docs/how_to/find_a_strategy.md",
    "docs/how_to/compare_schedules.md",
    "docs/how_to/export_results.md",
    "docs/how_to/check_for_hangs.md",
    "docs/how_to/run_schedules.md",
    "docs/reference/file_formats.md",
)
"""Pages whose commands are run, one after another in the same folder."""
DOCUMENTS = (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("**/*.md")))
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
COMMAND = re.compile(r"(?:\.venv/bin/)?tessel (.*)")
COMMANDS_OF_README = 6


def blocks(page: str) -> list[tuple[str, str]]:
    """Return language and text of each block of code on a page."""
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def commands() -> list[str]:
    """Return every `tessel …` line of the sh blocks in order. Blocks of bash need files that tests do not have."""
    lines = [
        line for page in PAGES for language, text in blocks(page) if language == "sh" for line in text.splitlines()
    ]
    return [found[1] for line in lines if (found := COMMAND.fullmatch(line))]


def runs_a_schedule(command: str) -> bool:
    """Whether the command needs PyTorch."""
    return command.startswith(("run tight.json", "run zb-v-4"))


def example(kind: str) -> str:
    """Return the example of a format on the page of file formats."""
    (found,) = [text for language, text in blocks("docs/reference/file_formats.md") if f'"{kind}"' in text]
    return found


def said(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    """Run a command, assert that it exits with 0, and return its output."""
    monkeypatch.setattr(sys, "argv", ["tessel", *shlex.split(command), *more])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0, command
    return capsys.readouterr().out


def test_the_commands_of_the_documents_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "network.json").write_text(example("tessel-graph"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    printed = dict[str, str]()
    for command in commands():
        if not runs_a_schedule(command):
            numpy = ("--engine", "numpy") if command.startswith("run ") else ()  # as it is without PyTorch
            printed[command] = said(command, monkeypatch, capsys, *numpy)

    def answer(*words: str) -> str:
        """Return the output of the only command that begins with these words."""
        (found,) = [text for command, text in printed.items() if command.startswith(" ".join(words))]
        return found

    assert len(printed) > 2 * COMMANDS_OF_README
    assert "m-shape-4" in printed["samples"]
    assert re.search(r"Time per micro-batch\s+6 steps\s+bound 6 steps", printed["schedule m-shape-4"])
    assert re.search(r"Makespan\s+204 steps\s+bound 204 steps", printed["schedule m-shape-4"])
    assert re.search(r"Time per micro-batch\s+8 steps", printed["schedule m-shape-4 --scheduler 1f1b+"])
    tight = printed["schedule v-shape-4 --memory 3 --out tight.json"]
    assert re.search(r"5\.333 steps\s+bound 5\.333 steps, proved", tight)
    assert "The steady schedule repeats every 3 micro-batches" in tight
    assert printed["check tight.json"] == "tight.json: valid\n"
    assert re.search(r"1F1B\+,.*found +\S+ +0\.\d+ +8 ", answer("compare", "v-shape-4 m-shape-4")), (
        "slower than the 1F1B of the V, 8 steps a micro-batch"
    )
    assert answer("export tight.json --out tight.html").startswith("tight.html: HTML report, ")
    assert answer("export tight.json --out tight.trace").startswith("tight.trace.json: Chrome trace, ")
    assert answer("export tight.json --to csv").startswith("device,block,")
    assert answer("check tight.json --channels").startswith("tight.json: valid\n  proceeds: ")
    assert "  proceeds: " in answer("check zero-bubble.csv")
    assert "Largest load 4 ms, proved optimal" in answer("place network.json")
    assert answer("check network.json") == "network.json: valid\nplaced.json: valid\n"
    assert answer("graph gpt").startswith("gpt2-small")
    assert "proved optimal" in answer("place gpt2.json")
    assert "16 blocks on 8 devices" in answer("plan gpt2.json")
    assert "roved optimal" in answer("schedule gpt2-plan.json")
    assert re.search(r"transfers that wait for each other +0 ns", answer("program gpt2.json"))
    assert all(f"gpt-175b-{form}-4" in answer("compare --network") for form in ("v", "split-v", "zb-v", "split-x"))
    assert "p95" in answer("compare v-shape-4 --schedulers tessel,1f1b --jitter")
    assert re.search("ms|µs", answer("simulate mlp"))
    assert "feasible" in answer("sweep mlp")
    assert "tokens per second and device" in answer("simulate llama-3-8b")
    assert answer("run gpt").startswith("gpt-4x64, 4 devices, ")


@pytest.mark.parametrize("page", ["README.md", "docs/reference/python_api.md"])
def test_the_examples_in_python_say_what_they_print(page: str) -> None:
    failed, tried = doctest.testfile(str(ROOT / page), module_relative=False)
    assert (failed, tried > 0) == (0, True)


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_the_schedules_of_the_guides_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    said("schedule v-shape-4 --memory 3 --out tight.json", monkeypatch, capsys)
    toy, measured, published = (said(each, monkeypatch, capsys) for each in filter(runs_a_schedule, commands()))
    assert "All losses and gradients equal those of one process" in toy
    assert "predicted from an earlier run" in measured
    assert published.startswith("zb-v-4: 8 micro-batches on 4 ranks, a toy network")


def test_the_guide_names_every_export_with_its_suffix() -> None:
    text = (ROOT / "docs" / "how_to" / "export_results.md").read_text(encoding="utf-8")
    rows = [line.split("|")[1:3] for line in text.splitlines() if line.startswith("| `")]
    told = {pair for names, suffixes in rows for pair in zip(names.split(), suffixes.split(), strict=False)}
    assert {(f"`{export.name}`", f"`{export.suffix}`") for export in EXPORTS.values()} <= told


def test_the_plan_of_the_file_formats_can_be_scheduled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plan.json").write_text(example("tessel-plan"), encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["tessel", "schedule", str(tmp_path / "plan.json"), "--micro-batches", "4"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 0


SHAPES_OF_THE_TABLE = {"V": "v-shape", "M": "m-shape", "Loop": "loop", "X": "x-shape", "split V": "split-v"}
SHAPES_OF_THE_TABLE |= {"ZB-V": "zb-v", "all forward first": "v-shape", "any": "v-shape"}
SLOTS_PER_ACTIVATION = {"loop": 2, "zb-v": 4}


def rows_of_published_schedules() -> list[list[str]]:
    """Return the cells of each row of the table, without backticks."""
    table = (ROOT / "docs" / "reference" / "published_schedules.md").read_text(encoding="utf-8")
    table = table.split("| name | schedule | on")[1]
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
    """Return the paths of all our modules."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith(".")]
    return [
        path.as_posix() for path in (*ROOT.glob("*.py"), *(path for each in folders for path in each.rglob("*.py")))
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_every_module_that_a_document_names_exists(document: Path) -> None:
    named = set(re.findall(r"(?<!Write )`([\w/]+\.py)`", document.read_text(encoding="utf-8")))
    assert [name for name in sorted(named) if not any(path.endswith(f"/{name}") for path in modules())] == []


@pytest.mark.parametrize("document", sorted(ROOT.glob("*.md")), ids=lambda path: path.name)
def test_every_link_of_a_document_leads_somewhere(document: Path) -> None:
    """Links between pages of the site are checked when it is built."""
    for target, heading in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", document.read_text(encoding="utf-8")):
        found = document.parent / target if target else document
        assert found.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", found.read_text(encoding="utf-8"), re.MULTILINE)
            assert heading in {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}, heading


OPTIONS_OF_OTHERS = {"--peer", "--pipeline-model-parallel-layout", "--rm", "--write-goldens"}
"""Options of benchmarks, Megatron-LM, docker and pytest."""


def options_of(command: Any) -> set[str]:
    """Return the options of a command and its subcommands."""
    own = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    return own.union(*(options_of(each) for each in getattr(command, "commands", {}).values()))


@pytest.mark.parametrize(
    "document", [each for each in DOCUMENTS if each.name != "CHANGELOG.md"], ids=lambda path: path.name
)
def test_every_option_that_a_document_names_exists(document: Path) -> None:
    known = OPTIONS_OF_OTHERS.union(*(options_of(verb.load(name)) for name, verb in VERBS.items()))
    assert set(re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", document.read_text(encoding="utf-8"))) <= known


def test_the_picture_of_layers_is_that_of_the_import_contract() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers = [set(re.findall(r"tessel_core\.(\w+)", line)) for line in contract["contracts"][0]["layers"]]
    picture = text.split("═\n")[1].split("```")[0].splitlines()
    assert [set(re.findall(r"\w+", re.split(r"\s{2,}", line.strip())[0])) for line in picture] == layers

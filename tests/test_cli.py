"""The command line: documents, exit codes, one line per error, no file on failure, Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from helpers.stores import simple_workspace
from helpers.terminal import Tessel, terminal

from tessel_core import cli, control
from tessel_core.cli import solving
from tessel_core.cli.verbs import VERBS
from tessel_core.control import Control
from tessel_core.formats import plan_text, read_file, read_schedule, schedule_text, workspace_text
from tessel_core.formats.files import read_mesh_file
from tessel_core.formats.schedule_file import ScheduleFile
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice
from tessel_core.samples import list_graphs, list_meshes, list_samples, load_mesh, load_sample
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tessel_core.version import __version__

SCHEDULE_KEYS = {
    "status",
    "objective_name",
    "period",
    "unroll",
    "period_per_micro_batch",
    "bound_per_micro_batch",
    "period_infimum",
    "makespan",
    "makespan_bound",
    "repetend_makespan",
    "steady",
    "objective",
    "bound",
    "bubble_rate",
    "steady_bubble_rate",
    *(
        f"{of}{part}"
        for of in ("", "steady_")
        for part in ("idle_rate", "imbalance_rate", "unavoidable_rate", "open_rate")
    ),
    "idle_causes",
    "steady_idle_causes",
    "peak_memory",
    "wall_s",
    "phases",
}
"""Keys of the contract. `reason`, `least_capacity` and `excess` are optional."""


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command in this process. Its folder contains `v.json`, the V on four devices."""
    monkeypatch.chdir(tmp_path)
    Path("v.json").write_text(plan_text(load_sample("v-shape-4")), encoding="utf-8")
    return terminal(monkeypatch, capsys)


def files() -> set[str]:
    return {path.name for path in Path().iterdir()}


@pytest.mark.parametrize(
    "scheduler", [name for name, each in SCHEDULERS.items() if not each.objection(load_sample("v-shape-4"))]
)
def test_schedule_writes_one_document_with_the_keys_of_the_design(tessel: Tessel, scheduler: str):
    ended = tessel("schedule", "v.json", "--scheduler", scheduler, "--micro-batches", "4", "--json", "--out", "s.json")
    assert (ended.code, ended.err) == (0, "")
    said = ended.document
    assert SCHEDULE_KEYS <= set(said) <= SCHEDULE_KEYS | {"reason", "least_capacity", "excess"}
    assert (said["objective_name"], said["objective"]) == ("makespan", said["makespan"])
    assert said["bound"] == said["makespan_bound"]
    assert said["status"] in ("PROVED_OPTIMAL", "FEASIBLE")
    assert isinstance(said["makespan"], int)
    assert said["makespan_bound"] <= said["makespan"]
    assert said["bubble_rate"] == pytest.approx(1 - 4 * 4 / said["makespan"])
    for of in ("", "steady_"):
        bubble, causes = said[f"{of}bubble_rate"], said[f"{of}idle_causes"]
        if bubble is not None:
            assert said[f"{of}idle_rate"] == pytest.approx(said[f"{of}imbalance_rate"] + bubble)
            assert bubble == pytest.approx(said[f"{of}unavoidable_rate"] + said[f"{of}open_rate"])
            assert said[f"{of}idle_rate"] == pytest.approx(sum(causes.values()))
    assert said["bound_per_micro_batch"] == 4
    kept = read_file(Path("s.json"))
    assert isinstance(kept, ScheduleFile)
    assert kept.scheduler == scheduler
    assert kept.schedule.makespan == said["makespan"]
    assert kept.schedule.micro_batches == 4
    assert kept.report is not None
    assert str(kept.report.status) == said["status"]
    assert tessel("check", "v.json", "s.json").code == 0


def test_the_search_says_its_period_its_phases_and_its_peaks(tessel: Tessel):
    said = tessel("schedule", "v.json", "--json").document
    assert (said["status"], said["period"], said["unroll"], said["period_per_micro_batch"]) == (
        "PROVED_OPTIMAL",
        4,
        1,
        4,
    )
    assert (said["makespan"], said["makespan_bound"]) == (140, 140)
    assert said["steady_bubble_rate"] == 0.0
    assert set(said["phases"]) == {"repetend_s", "completion_s"}
    assert len(said["peak_memory"]) == 4
    assert said["phases"]["repetend_s"] + said["phases"]["completion_s"] <= said["wall_s"]


@pytest.mark.parametrize(
    ("memory", "micro_batches", "repeats"), [(4, 8, True), (2, 6, True), (3, 1, False)], ids=["loose", "tight", "one"]
)
@pytest.mark.parametrize("objective", ["makespan", "period"])
def test_the_objective_says_which_schedule_comes_back(
    tessel: Tessel, objective: str, memory: int, micro_batches: int, repeats: bool
):
    words = ["--objective", objective, "--memory", memory, "--micro-batches", micro_batches, "--polish", "0.2"]
    ended = tessel("schedule", "v.json", *words, "--json", "--out", "s.json")
    said = ended.document
    assert (ended.code, said["objective_name"]) == (0, objective)
    amount, bound = {
        "makespan": (said["makespan"], said["makespan_bound"]),
        "period": (said["period_per_micro_batch"], said["bound_per_micro_batch"]),
    }[objective]
    assert (said["objective"], said["bound"]) == (amount, bound)
    assert (said["status"] == "PROVED_OPTIMAL") == (amount == pytest.approx(bound))
    assert said["period"] / said["unroll"] == pytest.approx(said["period_per_micro_batch"])
    assert (said["repetend_makespan"] is not None) == repeats
    if repeats:
        assert said["makespan_bound"] <= said["makespan"] <= said["repetend_makespan"]
    kept = read_file(Path("s.json"))
    assert isinstance(kept, ScheduleFile)
    assert kept.report is not None
    assert (kept.report.objective_name, kept.report.objective, kept.report.bound) == (objective, amount, bound)
    assert kept.schedule.makespan == said["makespan"]
    if objective == "period":
        assert said["makespan"] == (said["repetend_makespan"] or said["makespan"])
        assert (kept.schedule.repetend is not None) == repeats
    assert tessel("check", "s.json").code == 0
    assert tessel("export", "s.json", "--to", "csv", "--out", "s.csv").code == 0


def test_what_there_is_not_is_null(tessel: Tessel):
    said = tessel("schedule", "v.json", "--scheduler", "gpipe", "--micro-batches", "1", "--json").document
    assert [said[key] for key in ("period", "unroll", "period_per_micro_batch", "steady_bubble_rate", "phases")] == [
        None
    ] * 5


def test_a_period_between_two_ticks_is_a_number(tessel: Tessel):
    said = tessel("schedule", "v.json", "--memory", "3", "--max-unroll", "3", "--json").document
    assert said["period_per_micro_batch"] == pytest.approx(16 / 3)
    assert (said["period"], said["unroll"]) == (16, 3)


def test_memory_replaces_every_capacity_and_the_file_says_so(tessel: Tessel):
    ended = tessel("schedule", "v.json", "--memory", "7", "--micro-batches", "8", "--out", "s.json", "--json")
    assert ended.code == 0
    kept = read_file(Path("s.json"))
    assert isinstance(kept, ScheduleFile)
    assert [device.memory_capacity for device in kept.schedule.plan.devices] == [7] * 4
    assert tessel("schedule", "s.json", "--scheduler", "gpipe", "--micro-batches", "7", "--json").code == 0
    assert tessel("schedule", "s.json", "--scheduler", "gpipe", "--micro-batches", "8", "--json").code == 1


def test_infeasible_is_said_as_json_with_the_least_capacity_that_would_do(tessel: Tessel):
    ended = tessel("schedule", "v.json", "--memory", "0", "--json", "--out", "s.json")
    said = ended.document
    assert (ended.code, ended.err) == (1, "")
    assert (said["status"], said["least_capacity"]) == ("INFEASIBLE", 1)
    assert [said[key] for key in ("period", "makespan", "bubble_rate", "peak_memory")] == [None] * 4
    assert files() == {"v.json"}
    assert tessel("schedule", "v.json", "--memory", "1", "--json", "--micro-batches", "2").code == 0


def test_a_baseline_that_does_not_fit_says_by_how_much_and_writes_nothing(tessel: Tessel):
    ended = tessel("schedule", "v.json", "--scheduler", "gpipe", "--micro-batches", "6", "--json", "--out", "s.json")
    said = ended.document
    assert (ended.code, said["status"], said["excess"]) == (1, "INFEASIBLE", [2, 2, 2, 2])
    assert said["peak_memory"] == [6, 6, 6, 6]
    assert files() == {"v.json"}


def test_people_are_told_the_same(tessel: Tessel):
    ended = tessel("schedule", "v.json", "--micro-batches", "32")
    assert ended.code == 0
    for words in ("Makespan proved optimal", "period is proved", "4 steps", "140 steps", "v-shape-4, tessel"):
        assert words in ended.out
    assert "Period proved optimal" in tessel("schedule", "v.json", "--objective", "period").out
    assert "Infeasible" in tessel("schedule", "v.json", "--memory", "0").out


BROKEN = {
    "missing.json": None,
    "empty.json": b"",
    "binary.json": b"\xff\xfe\x00",
    "truncated.json": plan_text(load_sample("v-shape-4")).encode()[:-20],
    "list.json": b"[]",
    "deep.json": b"[" * 100_000,
    "newer.json": b'{"format": "tessel-plan", "version": 2}',
    "colour\nof.json": b'{"format": "tessel-plan", "version": 1, "colour\\n": 3}',
}


@pytest.mark.parametrize(
    ("words", "why"),
    [
        *[(["schedule", name, "--out", "s.json"], f"error: {' '.join(name.split())}: ") for name in BROKEN],
        *[(["check", "v.json", name], f"error: {' '.join(name.split())}: ") for name in BROKEN],
        (["schedule", "."], "error: .: is a folder, not a file"),
        (
            ["schedule", "v.json", "--scheduler", "magic"],
            "error: --scheduler: 'magic' is not known, choose from tessel, ",
        ),
        (["schedule", "v.json", "--scheduler", "1f1b+"], "error: scheduler 1f1b+: does not apply to plan v-shape-4: "),
        (
            ["schedule", "v.json", "--micro-batches", "0"],
            "error: --micro-batches: must be an integer of at least 1, got 0",
        ),
        (
            ["schedule", "v.json", "--micro-batches", "many"],
            "error: tessel schedule: Invalid value for '--micro-batches'",
        ),
        (["schedule", "v.json", "--micro-batches", "1" + "0" * 30], "error: --micro-batches: "),
        (["schedule", "v.json", "--memory", "-1"], "error: device gpu0: memory_capacity must be at least 0, got -1"),
        (["schedule", "v.json", "--time-limit", "nan"], "error: --time-limit: must be between 0.1 and 3600, got nan"),
        (
            ["schedule", "v.json", "--max-unroll", "0"],
            "error: --max-unroll: must be between 1 and 16, got 0",
        ),
        (
            ["schedule", "v.json", "--objective", "beauty"],
            "error: --objective: must be one of makespan, period, got 'beauty'",
        ),
        (["schedule", "v.json", "--workers", "1.5"], "error: tessel schedule: Invalid value for '--workers'"),
        (["schedule", "v.json", "--sheduler", "tessel"], "error: tessel schedule: No such option"),
        (["schedule", "v.json", "--out", "nowhere/s.json"], "error: nowhere/s.json: cannot be written: "),
        (["schedule", "v.json", "--out", "."], "error: .: is a folder, not a file"),
        (["schedule"], "error: tessel schedule: Missing argument"),
        (["samples", "v-shap-4"], "error: sample: 'v-shap-4' is not known, did you mean v-shape-4"),
        (["samples", "v-shape-4", "--out", "nowhere/v.json"], "error: nowhere/v.json: cannot be written: "),
        (["schedule", "gpt-175b-training"], "error: gpt-175b-training: is an operator graph, but a plan or a "),
        (["place", "m-shape-4"], "error: m-shape-4: is a plan, but an operator graph is needed"),
        (["joint", "./v.json"], "error: ./v.json: is a plan, but an operator graph is needed"),
        (["plan", "m-shape-4", "v.json"], "error: m-shape-4: is a plan, but an operator graph is needed"),
        (["check"], "error: tessel check: Missing argument"),
        (["dance"], "error: tessel: No such command 'dance'."),
        (["sweep", "dance"], "error: tessel sweep: No such command 'dance'."),
        (["sweep", "schedules"], "error: tessel sweep schedules: Missing option '--graph'."),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_bad_input_and_usage_are_one_line_and_exit_code_2(tessel: Tessel, words: list[str], why: str):
    for name, data in BROKEN.items():
        if data is not None:
            Path(name).write_bytes(data)
    before = files()
    for extra in ([], ["--json"]):
        ended = tessel(*words, *extra)
        assert (ended.code, ended.out) == (2, "")
        assert ended.err.startswith(why)
        assert ended.err.count("\n") == 1
        assert files() == before


def test_an_option_of_another_scheduler_is_noted_and_left_out(tessel: Tessel):
    ended = tessel("schedule", "v.json", "--scheduler", "gpipe", "--micro-batches", "2", "--max-unroll", "3", "--json")
    assert ended.code == 0
    assert ended.err == "note: --max-unroll has no effect on scheduler gpipe\n"


def broken_schedule(rule: str) -> str:
    """Return the text of a schedule file that breaks one rule."""
    report = solve_schedule("1f1b", load_sample("v-shape-4"), 8)
    assert report.solution is not None
    document = json.loads(schedule_text(report.solution, report))
    runs = document["runs"]
    if rule == "coverage":
        del runs[-1]
    elif rule == "no overlap":
        for run in runs:
            if run["block"] == "B0" and run["micro_batch"] == 7:
                run["start"] -= 4
    elif rule == "memory":
        document["plan"]["devices"][0]["memory_capacity"] = 3
    elif rule == "repetend repeats":
        document["repetend"]["period"] += 1
    elif rule == "claims":
        document["report"]["objective"] -= 1
    return json.dumps(document)


@pytest.mark.parametrize("rule", ["coverage", "no overlap", "memory", "repetend repeats", "claims"])
def test_check_exits_1_with_the_violations(tessel: Tessel, rule: str):
    Path("s.json").write_text(broken_schedule(rule), encoding="utf-8")
    ended = tessel("check", "v.json", "s.json", "--json")
    assert (ended.code, ended.err) == (1, "")
    good, bad = ended.document
    assert good == {"file": "v.json", "valid": True, "violations": []}
    assert (bad["file"], bad["valid"]) == ("s.json", False)
    assert rule in {violation["rule"] for violation in bad["violations"]}
    assert all(set(violation) == {"rule", "where", "why"} for violation in bad["violations"])
    spoken = tessel("check", "v.json", "s.json")
    assert spoken.code == 1
    assert "v.json: valid\ns.json: not valid, " in spoken.out
    assert f"[{rule}]" in spoken.out


def test_a_workspace_is_taken_for_its_plan_and_checked_by_its_schedule(tessel: Tessel):
    for rule, verdict in (("no rule", "valid"), ("memory", "not valid")):
        opened = read_schedule(broken_schedule(rule).encode())
        work = replace(simple_workspace(opened.schedule.plan), opened=opened)
        Path("w.json").write_text(workspace_text(work), encoding="utf-8")
        ended = tessel("check", "w.json")
        assert f"w.json: {verdict}" in ended.out
        assert ended.code == (verdict != "valid")
    Path("w.json").write_text(workspace_text(replace(work, rest={**work.rest, "colour": "red"})), encoding="utf-8")
    refused = tessel("check", "w.json")
    assert refused.code == 2
    assert "w.json: the file: unknown key 'colour'" in refused.err
    assert tessel("schedule", "w.json", "--scheduler", "gpipe", "--micro-batches", "3", "--json").code == 0


def test_samples_are_listed_and_written(tessel: Tessel):
    names = [sample.name for sample in (*list_samples(), *list_graphs(), *list_meshes())]
    listed = tessel("samples", "--json")
    assert [entry["name"] for entry in listed.document] == names
    assert set(listed.document[0]) >= {"name", "title", "description", "provenance", "family"}
    shown = tessel("samples").out
    assert all(name in shown for name in names)
    assert tessel("samples", "m-shape-4", "--out", "m.json").code == 0
    assert read_file(Path("m.json")) == load_sample("m-shape-4")
    assert tessel("samples", "m-shape-4").out == Path("m.json").read_text(encoding="utf-8")
    assert tessel("samples", "h200-16", "--out", "mesh.json").code == 0
    assert read_mesh_file(Path("mesh.json")).mesh == load_mesh("h200-16")
    assert tessel("check", "mesh.json").out == "mesh.json: valid\n"


def test_help_names_every_command_and_every_option_of_every_scheduler(tessel: Tessel):
    ended = tessel("--help")
    assert ended.code == 0
    for command in ("app", "samples", "check", "schedule"):
        assert command in ended.out
    ended = tessel("schedule", "--help")
    for option in (
        "objective",
        "micro-batches",
        "memory",
        "max-unroll",
        "time-limit",
        "polish",
        "workers",
        "seed",
        "out",
        "json",
    ):
        assert f"--{option}" in ended.out


def test_the_version_is_that_of_the_package(tessel: Tessel) -> None:
    assert tessel("--version").out == f"tessel {__version__}\n"


@pytest.mark.parametrize("name", VERBS)
def test_the_list_of_verbs_says_what_each_says_of_itself(name: str) -> None:
    assert VERBS[name].load(name).get_short_help_str(limit=1000) == VERBS[name].help


def test_help_loads_no_verb() -> None:
    """Commands import NumPy, formats and solvers, which takes most of a second."""
    run = "from tessel_core.cli.command import app; app(['--help'], standalone_mode=False)"
    ask = f"import sys; {run}; print(*sys.modules)"
    shown = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout
    loaded = shown.splitlines()[-1].split()
    assert "place" in shown
    assert {each for each in loaded if each.startswith("tessel_core.")} == {
        "tessel_core.bundle",
        "tessel_core.cli",
        "tessel_core.cli.command",
        "tessel_core.cli.streams",
        "tessel_core.cli.verbs",
        "tessel_core.errors",
        "tessel_core.shown",
        "tessel_core.version",
    }
    assert "numpy" not in loaded


def test_cancelled_before_anything_was_found_exits_1(tessel: Tessel, monkeypatch: pytest.MonkeyPatch):
    class Cancelled(control.Control):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            self.cancel()

    forward = [Block(name, BlockKind.FORWARD, (0,), 1, 1) for name in ("F", "G")]
    backward = [Block(name, BlockKind.BACKWARD, (0,), 2, -1) for name in ("B", "C")]
    chains = Dependency("F", "B"), Dependency("G", "C")
    plan = MicroBatchPlan("two chains", (PlanDevice("gpu0", 1),), (*forward, *backward), chains)
    Path("two.json").write_text(plan_text(plan), encoding="utf-8")
    monkeypatch.setattr(solving, "Control", Cancelled)
    ended = tessel("schedule", "two.json", "--json", "--out", "s.json")
    assert (ended.code, ended.document["status"]) == (1, "CANCELLED")
    assert files() == {"v.json", "two.json"}


def wait_for_the_search(process: subprocess.Popen[str]) -> None:
    """Wait until the solver's library is loaded and has run for a moment."""
    maps, until = Path(f"/proc/{process.pid}/maps"), time.monotonic() + 20
    while maps.exists() and "ortools" not in maps.read_text():
        assert process.poll() is None
        assert time.monotonic() < until
        time.sleep(0.05)
    time.sleep(0.7 if maps.exists() else 3.0)
    assert process.poll() is None


def test_control_c_keeps_the_best_so_far(tmp_path: Path):
    """Interrupt a search that takes longer than a minute, with the signal of a terminal."""
    plan = tmp_path / "nn.json"
    plan.write_text(plan_text(load_sample("nn-shape-4")), encoding="utf-8")
    command = [sys.executable, "-m", "tessel_core.cli", "schedule", str(plan), "--memory", "4", "--time-limit", "60"]
    command += ["--polish", "60", "--json", "--out", str(tmp_path / "s.json")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_for_the_search(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=20)  # long before the search would end by itself
    said = json.loads(out)
    assert (process.returncode, err) == (0, "")
    assert (said["status"], said["reason"]) == ("FEASIBLE", "cancelled: the best so far")
    kept = read_file(tmp_path / "s.json")
    assert isinstance(kept, ScheduleFile)
    assert kept.schedule.makespan == said["makespan"]


def test_an_interrupt_that_another_thread_takes_is_heard():
    """The main thread only waits, and the system may deliver the signal to another thread."""

    def call(control: Control) -> bool:
        time.sleep(0.3)  # until the main thread waits
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
        until = time.monotonic() + 3.0
        while not control.cancelled and time.monotonic() < until:
            time.sleep(0.01)
        return control.cancelled

    assert solving.solve(call, "step")


def test_control_c_while_the_code_still_loads_is_quiet(monkeypatch: pytest.MonkeyPatch):
    """An interrupt during the import of the command line has exit code 130 and no traceback."""

    class Interrupted(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "tessel_core.cli.command", Interrupted("command"))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130


def test_the_app_ends_with_its_command(tmp_path: Path):
    """A service manager sends SIGTERM to the command. The server must end too."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tessel_core.cli", "app", "--headless", "--port", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env={**os.environ, "TESSEL_DATA": str(tmp_path)}, **quiet) as process:
        until = time.monotonic() + 30
        while not answers(port) and time.monotonic() < until:
            time.sleep(0.1)
        assert answers(port)
        process.terminate()
        process.wait(10)
    assert not answers(port)


def answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_the_command_line_starts_without_the_heavy_libraries():
    heavy = ["ortools", "plotly", "streamlit", "pandas", "networkx", "numpy", "torch"]
    script = f"import sys, tessel_core.cli; print([name for name in {heavy} if name in sys.modules])"
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"


def test_a_reader_that_has_gone_gets_no_traceback():
    command = f"{sys.executable} -m tessel_core.cli samples --json | true"
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert ended.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize(
    "words", ["samples", "samples --json", "samples v-shape-4", "--help", "samples --help", "sweep"]
)
@pytest.mark.parametrize("unbuffered", [False, True])
def test_a_full_stdout_is_one_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, unbuffered: bool
):
    monkeypatch.setattr(sys, "argv", ["tessel", *words.split()])
    with open("/dev/full", "wb", buffering=0 if unbuffered else -1) as device:
        full = io.TextIOWrapper(device, encoding="utf-8", write_through=unbuffered)
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as ended:
            cli.main()
    assert (ended.value.code, capsys.readouterr().err) == (2, FULL)


LEFT = """
import atexit, sys, time
from tessel_core import cli
from tessel_core.control import Abandonable
Abandonable(lambda: time.sleep(60)).start()
atexit.register(print, "Python ends as it always does")
sys.argv = ["tessel", *sys.argv[1:]]
cli.main_of_process()
"""


@pytest.mark.parametrize(("words", "code", "said"), [(["samples"], 0, "m-shape-4"), (["schedule", "none"], 2, "none")])
def test_a_command_ends_at_once_where_its_search_left_a_thread(words: list[str], code: int, said: str):
    """A thread that returns from C++ while Python exits would abort the process."""
    ended = subprocess.run([sys.executable, "-c", LEFT, *words], capture_output=True, text=True, check=False)
    assert ended.returncode == code
    assert said in ended.stdout + ended.stderr
    assert "Python ends" not in ended.stdout


FULL = "error: stdout: cannot be written: No space left on device\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_process_with_a_full_stdout_adds_nothing_when_it_ends(unbuffered: str):
    command = f"{sys.executable} -m tessel_core.cli samples > /dev/full"
    how = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    ended = subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=how, check=False)
    assert (ended.returncode, ended.stderr) == (2, FULL)


def test_a_closed_stdout_is_one_line_and_a_closed_stderr_is_silence():
    command = f"{sys.executable} -m tessel_core.cli schedule v-shape-4 --json"
    ended = subprocess.run(["bash", "-c", f"{command} >&-"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (2, "error: stdout: is closed, so the answer cannot be printed\n")
    ended = subprocess.run(["bash", "-c", f"{command} --no 2>&-"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")


def test_a_terminal_without_our_letters_gets_an_answer_and_no_traceback():
    words = ["simulate", "mlp", "--layers", "2", "--width", "8", "--batch", "4"]
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-m", "tessel_core", *words]
    ended = subprocess.run(command, capture_output=True, env=ascii_only, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b" ?s per sample, 11 events" in ended.stdout

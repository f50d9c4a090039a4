"""Simulations as files: traces for viewers, and tables, also from a terminal."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from helpers.simulations import trained
from helpers.terminal import Tessel, terminal
from helpers.trace_rules import broken_trace_rules, of, read_trace

from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.exports.simulation_files import SIMULATION_EXPORTS, simulation_export_for
from tessel_core.ir import read_program
from tessel_core.ir.text import program_text
from tessel_core.simulation import simulate

MESH = find_mesh("h200-16")


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    monkeypatch.chdir(tmp_path)
    return terminal(monkeypatch, capsys)


@pytest.mark.parametrize("compat", [None, "distir"])
def test_a_trace_goes_to_a_file_and_keeps_the_viewers_rules(tessel: Tessel, compat: str | None) -> None:
    degrees = ("--layers", "4", "--data", "2", "--pipeline", "2", "--micro-batches", "4", "--mesh", "v100-4")
    words = ("simulate", "mlp", *degrees, *(("--compat", compat) if compat else ()))
    code, out, _ = tessel(*words, "--out", "step.trace.json", "--json")
    assert code == 0
    events = read_trace(Path("step.trace.json").read_bytes())
    assert broken_trace_rules(events) == set()
    slices = of(events, "X")
    assert len(slices) == json.loads(out)["events"]
    assert {each["pid"] for each in slices} == {1, 2, 3, 4}
    assert len({each["tid"] for each in slices}) == 8, "a thread for computing and one for communication on each"
    assert {each["args"]["name"] for each in of(events, "M") if each["name"] == "process_name"} == {
        f"gpu{i}" for i in range(4)
    }
    for device, peak in enumerate(json.loads(out)["peak_memory"], 1):
        levels = [each["args"]["B"] for each in of(events, "C") if each["pid"] == device]
        assert compat or max(levels) == peak
    assert len(of(events, "s")) == 2 * 4 * 2, "each replica sends each micro-batch on and its gradient back"
    formulas = {each["args"]["formula"] for each in slices if each["name"] == "matmul"}
    assert all(("÷" in each) == (compat is None) for each in formulas), "DistIR's times are not those of the mesh"


def test_a_table_says_when_everything_ran_and_what_was_held(tessel: Tessel) -> None:
    trace = simulate(trained(2, 1, 2, 2), MESH)
    Path("p.txt").write_text(program_text(trained(2, 1, 2, 2)))
    assert tessel("simulate", "p.txt", "--mesh", "h200-16", "--out", "p.csv").code == 0
    rows = list(csv.DictReader(io.StringIO(Path("p.csv").read_text())))
    assert len(rows) == trace.events
    for device, end, peak in zip(trace.devices, trace.device_end, trace.peak_memory, strict=True):
        mine = [row for row in rows if row["device"] == MESH.devices[device - 1].name]
        starts = [float(row["start_s"]) for row in mine]
        assert starts == sorted(starts)
        assert max(float(row["end_s"]) for row in mine) == end
        assert 0 < max(int(row["memory_after"]) for row in mine) <= peak
        steps = trace.memory_device == device
        when, level = trace.memory_time[steps], trace.memory_bytes[steps]
        for row in mine:
            op = trace.program.ops[int(row["operation"])]
            assert (row["kind"], row["phase"]) == (op.kind, op.tag.phase)
            assert int(row["memory_after"]) == level[when <= float(row["end_s"])][-1]
            assert row["stream"] == ("communication" if op.kind in ("send", "allreduce") else "computing")


def test_too_many_events_for_viewers_are_refused_and_the_table_is_not(
    tessel: Tessel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tessel_core.exports.simulation_trace.MAX_EVENTS", 100)
    trace = simulate(trained(2, 1, 2, 2), MESH)
    sentence = f"the simulation has {trace.events:,} events, more than 100, the limit of trace viewers"
    with pytest.raises(InputError, match=f"^export chrome-trace: {sentence}$"):
        SIMULATION_EXPORTS["chrome-trace"].made(trace, None, True)
    assert SIMULATION_EXPORTS["csv"].made(trace, None, True).startswith(b"device,stream,operation,")
    Path("p.txt").write_text(program_text(trained(2, 1, 2, 2)))
    assert tessel("simulate", "p.txt", "--out", "p.trace.json") == (2, "", f"error: export chrome-trace: {sentence}\n")
    assert not Path("p.trace.json").exists()


def test_names_of_files_lead_to_their_export() -> None:
    for name, export in SIMULATION_EXPORTS.items():
        assert simulation_export_for(f"My.{name}{export.suffix.upper()}") is export
    with pytest.raises(InputError, match=r"^--out: must end in \.trace\.json or \.csv or \.txt, got 'p\.json'$"):
        simulation_export_for("p.json")


def test_arrows_lead_to_and_from_the_one_device_of_a_transfer() -> None:
    """A tensor is spread to three devices, one of which already has it, and gathered on another.

    Each transfer has two arrows, and a ring has none.
    """
    text = """program p
%x: fp32[4, 4]@1
%a: fp32[4, 4]@1 = relu(%x)
%b: fp32[4, 4]@1, %c: fp32[4, 4]@2, %d: fp32[4, 4]@3 = broadcast(%a) {devices=(1 2 3)}
%e: fp32[4, 4]@1 = relu(%b)
%f: fp32[4, 4]@2 = relu(%c)
%g: fp32[4, 4]@3 = relu(%d)
%h: fp32[4, 4]@1, %i: fp32[4, 4]@2, %j: fp32[4, 4]@3 = allreduce(%e, %f, %g)
%k: fp32[12, 4]@2 = gather(%h, %i, %j) {axis=0, to=2}
%l: fp32[12, 4]@2 = relu(%k)
return %l
"""
    events = read_trace(SIMULATION_EXPORTS["chrome-trace"].made(simulate(read_program(text), MESH), MESH, True))
    assert broken_trace_rules(events) == set()
    ends = [
        (one["name"], one["pid"], other["pid"]) for one, other in zip(of(events, "s"), of(events, "f"), strict=True)
    ]
    assert ends == [("broadcast", 1, 2), ("broadcast", 1, 3), ("gather", 1, 2), ("gather", 3, 2)]

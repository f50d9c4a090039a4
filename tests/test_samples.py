"""The sample models are complete and readable, and equal the generator's output."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.formats import mesh_text, plan_text, read_plan
from tessel_core.model import BlockKind
from tessel_core.registry import NoOptions
from tessel_core.rules import check_schedule
from tessel_core.samples import (
    SAMPLE_FOLDER,
    WORKED_ANSWER,
    list_meshes,
    list_samples,
    load_mesh,
    load_sample,
    sample_or_file,
    sample_text,
)
from tessel_core.scheduling import SCHEDULERS, solve_schedule

GENERATOR = Path(__file__).resolve().parent.parent / "tools" / "make_samples.py"
SAMPLES = {sample.name: sample for sample in list_samples()}
BASELINES = {name: scheduler for name, scheduler in SCHEDULERS.items() if scheduler.config is NoOptions}
every_sample = pytest.mark.parametrize("name", SAMPLES)

CAPACITIES = {
    "v-shape": (4, 8),
    "x-shape": (4, 8),
    "m-shape": (6, 12),
    "nn-shape": (6, 12),
    "nn-eager": (5, 12),
    "k-shape": (3, 8),
    "finetune": (5, 12),
    "alphafold": (6, 12),
    "loop": (11, 23),
    "split-v": (4, 8),
    "split-x": (5, 9),
    "zb-v": (16, 32),
}
"""Memory at 4 and at 8 devices, in slots, of the proved makespans."""
INFERENCE = {f"{shape}-shape-{n}-inference" for shape in ("v", "m", "nn", "k") for n in (4, 8)}
INFERENCE |= {f"flava-{n}-inference" for n in (4, 8, 16)}
VOCABULARIES = {f"{name}-{n}" for name in ("gpt-1m-vocab-v", "gpt-1m-vocab-m", "mt5-v", "mt5-nn") for n in (4, 8)}
GPT_3 = {
    f"gpt-{size}-{shape}-{n}" for size in ("6.7b", "13b", "175b") for shape in ("v", "split-v") for n in (4, 8, 16)
}
TIGHT = GPT_3 | {f"{name}-{n}" for name in ("flava", "evoformer") for n in (4, 8, 16)}
"""Training networks whose memory is too small for the published orders."""


def test_a_name_is_a_sample_before_it_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for name in ("v-shape-4", "mine"):
        Path(name).write_text("a file")
    assert sample_or_file("v-shape-4").read_bytes() == sample_text("v-shape-4").encode()
    assert sample_or_file("gpt-175b-training").name == "gpt-175b-training.json", "graphs too"
    for words in ("./v-shape-4", "mine", "missing.json", "folder/missing"):
        assert sample_or_file(words) == Path(words)
    for words, near in (("v-shape-5", "v-shape-4"), ("gpt-6.7b-v-5", "gpt-6.7b-v-4")):
        with pytest.raises(InputError, match=rf"{words}: is neither a sample nor a file, did you mean .*{near}"):
            sample_or_file(words)


def test_the_catalogue_holds_what_people_were_promised():
    assert set(SAMPLES) == {f"{shape}-{n}" for shape in CAPACITIES for n in (4, 8)} | INFERENCE | VOCABULARIES | TIGHT


@pytest.mark.parametrize("shape", CAPACITIES)
def test_shapes_have_the_capacities_of_the_proven_makespans(shape):
    for devices, capacity in zip((4, 8), CAPACITIES[shape], strict=True):
        plan = load_sample(f"{shape}-{devices}")
        assert [device.memory_capacity for device in plan.devices] == [capacity] * devices


@every_sample
def test_every_sample_says_what_it_is_and_where_it_comes_from(name):
    sample = SAMPLES[name]
    readme = (SAMPLE_FOLDER / "README.md").read_text(encoding="utf-8")
    for text in (sample.title, sample.description, sample.provenance, sample.family, f"`{name}.json`"):
        assert text
        assert "\n" not in text
        assert text in readme
    assert sample.description.endswith(".")
    assert "arXiv" in sample.provenance or "measured" in sample.provenance


@every_sample
def test_every_sample_round_trips(name):
    plan = load_sample(name)
    assert plan.name == name
    text = plan_text(plan)
    assert text.encode() == SAMPLES[name].path.read_bytes()
    assert read_plan(text.encode()) == plan


@every_sample
def test_every_baseline_that_applies_obeys_the_rules(name):
    plan = load_sample(name)
    fitting = [each for each, scheduler in BASELINES.items() if not scheduler.why_not(plan, 8)]
    assert "sequential" in fitting
    for scheduler in fitting:
        report = solve_schedule(scheduler, plan, 8)
        skipped = ("memory",) if report.solution is None else ()
        assert report.drawable is not None
        assert check_schedule(report.drawable, without=skipped) == []


@pytest.mark.parametrize("name", sorted(INFERENCE))
def test_inference_samples_hold_nothing(name):
    plan = load_sample(name)
    assert {(block.kind, block.memory) for block in plan.blocks} == {(BlockKind.FORWARD, 0)}


@pytest.mark.parametrize("name", sorted(TIGHT))
def test_memory_binds_yet_does(name):
    """With 32 micro-batches, published orders need more than an H200's 150 GB, but some order fits."""
    plan = load_sample(name)
    assert {device.memory_capacity for device in plan.devices} == {150_000_000_000}
    for scheduler in ("gpipe", "1f1b"):
        if not SCHEDULERS[scheduler].objection(plan):
            assert solve_schedule(scheduler, plan, 32).solution is None
    assert SCHEDULERS["1f1b"].objection(plan) == "" or name not in GPT_3
    assert solve_schedule("sequential", plan, 32).solution is not None


@pytest.mark.parametrize("devices", [4, 8])
def test_the_sharded_gpt_is_faster_than_the_staged_one(devices):
    """Its busiest device works less, and even its published schedule is shorter."""
    staged, sharded = (load_sample(f"gpt-1m-vocab-{shape}-{devices}") for shape in "vm")
    assert sharded.busiest_work < staged.busiest_work
    by_stages, by_shards = solve_schedule("1f1b", staged, 32), solve_schedule("1f1b+", sharded, 32)
    assert by_stages.solution is not None
    assert by_shards.solution is not None
    assert by_shards.solution.makespan < 0.82 * by_stages.solution.makespan


@pytest.mark.parametrize("name", [sample.name for sample in list_meshes()])
def test_every_sample_mesh_is_a_preset_and_says_where_it_comes_from(name):
    mesh, (sample,) = load_mesh(name), [each for each in list_meshes() if each.name == name]
    assert mesh == find_mesh(name)
    assert mesh_text(mesh) == sample_text(name) == sample.path.read_text(encoding="utf-8")
    readme = (SAMPLE_FOLDER / "README.md").read_text(encoding="utf-8")
    assert f"| `{name}.json` | {sample.title}. {sample.description} | {sample.provenance} |" in readme
    assert "data sheet" in sample.provenance


def test_meshes_and_plans_are_told_apart():
    assert [sample.name for sample in list_meshes()] == ["h200-16", "h200-8-a100-8"]
    assert load_mesh("H200 16").name == "h200-16"
    with pytest.raises(InputError, match=r"sample: 'v-shape-4' is not known, `tessel samples` lists all 2"):
        load_mesh("v-shape-4")
    with pytest.raises(InputError, match="sample: 'h200-16' is not known"):
        load_sample("h200-16")


OTHERS = ("optima.json", WORKED_ANSWER.name)
"""Files written by other tools."""


def test_the_generator_writes_the_same_bytes(tmp_path):
    runpy.run_path(str(GENERATOR))["write_samples"](tmp_path)
    written = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_bytes() for path in SAMPLE_FOLDER.glob("*.*") if path.name not in OTHERS}
    assert written == kept


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("gpt-1m-vocab-m-5", r"sample: 'gpt-1m-vocab-m-5' is not known, did you mean gpt-1m-vocab-m-[48] or "),
        ("???", r"sample: '\?\?\?' is not known, `tessel samples` lists all [0-9]+"),
    ],
)
def test_an_unknown_name_gets_a_hint(name, why):
    with pytest.raises(InputError, match=why):
        load_sample(name)


@pytest.mark.parametrize("name", ["loop-4", "loop4", "Loop 4", "LOOP_4", "loop-4 "])
def test_a_name_is_found_however_it_is_spaced(name):
    assert load_sample(name) == load_sample("loop-4")


def test_an_exact_name_comes_first(tmp_path):
    sample = {"title": "", "description": "", "provenance": "", "family": ""}
    rows = [{"name": name, **sample} for name in ("loop-4", "loop4")]
    document = {"format": "tessel-catalogue", "version": 1, "samples": rows}
    (tmp_path / "catalogue.json").write_text(json.dumps(document), encoding="utf-8")
    for name in ("loop-4", "loop4"):
        with pytest.raises(InputError, match=rf"{name}\.json: No such file"):
            load_sample(name, tmp_path)


@pytest.mark.parametrize(
    ("catalogue", "why"),
    [
        ('{"format": "tessel-plan", "version": 1, "samples": []}', "format: must be 'tessel-catalogue'"),
        ('{"format": "tessel-catalogue", "version": 2, "samples": []}', "tessel-catalogue version 2 is not known"),
        ('{"format": "tessel-catalogue", "version": 1}', "'samples' is missing"),
        ('{"format": "tessel-catalogue", "version": 1, "samples": [{"name": "a"}]}', "'title' is missing"),
        (
            '{"format": "tessel-catalogue", "version": 1, "samples": [{"name": "../a"}]}',
            "must be a plain file name, got '../a'",
        ),
    ],
)
def test_a_broken_catalogue_is_said_in_one_sentence(tmp_path, catalogue, why):
    (tmp_path / "catalogue.json").write_text(catalogue, encoding="utf-8")
    with pytest.raises(InputError, match=why) as raised:
        list_samples(tmp_path)
    assert str(tmp_path) in str(raised.value)


def test_a_missing_plan_file_is_said_in_one_sentence(tmp_path):
    (tmp_path / "catalogue.json").write_bytes((SAMPLE_FOLDER / "catalogue.json").read_bytes())
    with pytest.raises(InputError, match=r"v-shape-4\.json: No such file"):
        load_sample("v-shape-4", tmp_path)

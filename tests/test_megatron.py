"""Megatron-LM's layouts: exports read back, layouts become placements, and errors name their place."""

from __future__ import annotations

import json
import random
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from helpers.terminal import Tessel, terminal

from tessel_core.errors import InputError
from tessel_core.exports import EXPORTS
from tessel_core.formats.megatron_layout import layout_text, read_layout
from tessel_core.model import Schedule
from tessel_core.networks.forms import Terms, forms_of
from tessel_core.samples import load_sample
from tessel_core.scheduling import solve_schedule


@pytest.fixture
def tessel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tessel:
    monkeypatch.chdir(tmp_path)
    return terminal(monkeypatch, capsys)


def unrolled(text: str) -> list[str]:
    """Expand groups, then letters, as Megatron-LM's parser does."""
    text = text.replace(",", "")
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda match: match[1] * int(match[2]), text)
    return text.split("|")


def test_layouts_mean_what_they_mean_to_megatron() -> None:
    for text, stages in (
        ("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL", 40),
        ("Et*3|(tt|)*29,m|L", 32),
        ("Et|(t|)*30tL", 32),
        ("E||(|t)*2|*2L", 7),
        ("EL", 1),
    ):
        assert list(read_layout(text)) == unrolled(text)
        assert len(read_layout(text)) == stages
    assert layout_text(read_layout("Et*2|(t*2|)*34,t*3|(t*2|)*3,tL")) == "Et*2|(t*2|)*34,t*3|(t*2|)*3,tL"


def test_every_layout_that_is_written_reads_back() -> None:
    for seed in range(200):
        choose = random.Random(seed)
        stages = ["t" * choose.choice((0, 1, 1, 2, 3, 12)) for _ in range(choose.randint(1, 9))]
        stages[0], stages[-1] = f"E{stages[0]}", f"E{stages[0]}L" if len(stages) == 1 else f"{stages[-1]}L"
        assert unrolled(layout_text(stages)) == list(read_layout(layout_text(stages))) == stages


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "position 1: the first layer must be E, the embedding"),
        ("t*2L", "position 1: the first layer must be E, the embedding"),
        ("Et|t", "position 4: the last layer must be L, the loss"),
        ("Et|x|L", "position 4: 'x' is none of E, t, m, L, |, (…)*n and t*n"),
        ("Et |L", "position 3: ' ' is none of"),
        ("E(t|(t)*2)*2L", "position 5: a group within a group is not allowed"),
        ("E(t|L", "position 2: this ( is never closed"),
        ("Et)*2L", "position 3: closes a group that is not open or empty"),
        ("E(t|)L", "position 5: closes a group and needs *n, a number, after it"),
        ("Et*0L", "position 2: repeats nothing: *0"),
        ("(Et|)*2L", "position 2: a second E; there is one, first"),
        ("EtLtL", "position 3: a second L; there is one, last"),
        ("EmtL", "position 3: a transformer layer, t, may not follow one of multi-token prediction, m"),
        ("Et*999999999L", "position 2: makes more than 100,000 layers and stages"),
        ("E(t|)*999999999L", "position 5: makes more than 100,000 layers and stages"),
    ],
)
def test_a_damaged_layout_names_the_position(text: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        read_layout(text)
    assert str(caught.value).startswith(complaint)


def once(schedule: str, plan_name: str) -> Schedule:
    plan = forms_of("gpt-6.7b", Terms(devices=4, micro_batch=2))[0][plan_name]
    found = solve_schedule(schedule, plan.with_capacity(None), 4).solution
    assert found is not None
    return found


@pytest.mark.parametrize("form", ["v", "split-v", "loop"])
def test_arguments_say_the_layers_of_each_stage(form: str) -> None:
    schedule = once("sequential", form)
    said = shlex.split(EXPORTS["megatron"].made(schedule, None).decode())
    arguments = dict(zip(said[::2], said[1::2], strict=True))
    assert arguments["--num-layers"] == "32"
    assert arguments["--pipeline-model-parallel-size"] == "4"
    assert (arguments["--micro-batch-size"], arguments["--global-batch-size"]) == ("2", "8")
    stages = read_layout(arguments["--pipeline-model-parallel-layout"])
    labels = [block.label for block in schedule.plan.blocks if block.kind == "forward"]
    spans = [re.findall(r"\d+", label) for label in labels]
    assert [stage.count("t") for stage in stages] == [int(last) - int(first) + 1 for first, last in spans]


def sequential(sample: str) -> Schedule:
    found = solve_schedule("sequential", load_sample(sample).with_capacity(None), 2).solution
    assert found is not None
    return found


def gap() -> Schedule:
    schedule = once("sequential", "v")
    blocks = tuple(replace(b, label="layers 17–24") if b.name == "F2" else b for b in schedule.plan.blocks)
    return replace(schedule, plan=replace(schedule.plan, blocks=blocks))


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        (lambda: once("zb-v", "zb-v"), "stage 4 is on gpu3, but Megatron-LM assigns stages to ranks in loops"),
        (
            lambda: sequential("mt5-v-4"),
            'block F0 runs "encoder_embedding, encoders 0–14", but Megatron-LM needs an embedding first, ',
        ),
        (lambda: sequential("v-shape-4"), 'block F0 has no label that names its layers, such as "layers 0–7"'),
        (lambda: sequential("gpt-1m-vocab-m-4"), "block E is on 4 devices, but a stage must be on one"),
        (gap, "block F2 begins with layer 17, but must begin with layer 16"),
    ],
    ids=["zb-v", "mt5", "unlabelled", "sharded", "gap"],
)
def test_what_a_layout_cannot_say_is_refused_with_what_works(schedule, why: str) -> None:
    objection = EXPORTS["megatron"].objection(schedule())
    assert objection.startswith(why)
    assert objection.endswith(
        "; this export needs stages of GPT layers in a V or a loop; a PyTorch CSV can express any chain of stages"
    )


def test_a_layout_becomes_a_placement_a_plan_and_the_same_layout_again(tessel: Tessel) -> None:
    assert tessel("graph", "gpt", "--preset", "gpt2-small", "--backward", "--out", "g.json").code == 0
    mesh = ("--mesh", "h200-4")
    for layout, scheduler in (("Et*2|(t*4|)*2,t*2L", "1f1b"), ("E|(t*2|)*6,L", "interleaved")):
        placed = tessel("place", "g.json", *mesh, "--layout", layout, "--out", "placed.json", "--json")
        assert placed.code == 0, placed.err
        assert tessel("plan", "g.json", "placed.json", *mesh, "--out", "p.json").code == 0
        assert tessel("check", "g.json", "placed.json", "p.json").code == 0
        made = tessel("schedule", "p.json", "--scheduler", scheduler, "--micro-batches", "8", "--out", "s.json")
        assert made.code == 0
        said = tessel("export", "s.json", "--to", "megatron").out
        assert f"--pipeline-model-parallel-layout '{layout}'" in said
        assert said.startswith("--num-layers 12 --pipeline-model-parallel-size 4 ")
    layers = {layer for block in json.loads(Path("p.json").read_text())["blocks"] for layer in [block["label"]]}
    assert layers == {"embedding", *(f"layers {i}–{i + 1}" for i in range(0, 12, 2)), "head"}
    for words, complaint in (
        (["--layout", "Et*12|t|L"], "--layout: the layout: has 13 transformer layers, t, but the graph has 12"),
        (
            ["--layout", "Et*4|(t|)*4,t*4L"],
            "--layout: the layout: has 6 stages, which is not a multiple of the 4 devices",
        ),
        (
            ["--layout", "Et*12|m|L"],
            "--layout: the layout: has layers of multi-token prediction, m, but the graph has none",
        ),
        (["--layout", "Et*12x|L"], "--layout: position 6: 'x' is none of"),
        (["--layout", "Et*12L", "--split", "g.json"], "--layout: places all operators, and so does --split"),
    ):
        ended = tessel("place", "g.json", *mesh, *words)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert complaint in ended.err
    assert tessel("graph", "resnet", "--preset", "resnet50", "--out", "r.json").code == 0
    ended = tessel("place", "r.json", *mesh, "--layout", "Et|tL")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "graph resnet50" in ended.err


def test_a_searched_layout_is_written_read_planned_and_run(tessel: Tessel) -> None:
    words = ("graph", "gpt", "--preset", "gpt2-small", "--backward", "--by-layer", "--out", "g.json")
    assert tessel(*words).code == 0
    mesh = ("--mesh", "h200-4", "--stages-per-device", "2", "--time-limit", "5")
    placed = tessel("place", "g.json", *mesh, "--out", "placed.json", "--json").document
    assert placed["status"] == "PROVED_OPTIMAL"
    stages = read_layout(placed["layout"])
    assert (len(stages), placed["layout"].count("E"), sum(stage.count("t") for stage in stages)) == (8, 1, 12)
    assert set(placed["stages"].values()) == set(range(8))
    line = tessel("place", "g.json", *mesh, "--to", "megatron").out
    assert line.startswith("--num-layers 12 --pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'E")
    assert tessel("check", "g.json", "placed.json").code == 0
    assert tessel("plan", "g.json", "placed.json", "--mesh", "h200-4", "--out", "p.json").code == 0
    assert (
        tessel("schedule", "p.json", "--scheduler", "interleaved", "--micro-batches", "8", "--out", "s.json").code == 0
    )
    assert f"'{placed['layout']}'" in tessel("export", "s.json", "--to", "megatron").out
    judged = tessel("place", "g.json", "--mesh", "h200-4", "--layout", placed["layout"], "--json").document
    assert judged["objective"] == pytest.approx(placed["objective"])


def test_a_searched_v_is_a_v_in_its_plan(tessel: Tessel) -> None:
    words = ("graph", "gpt", "--preset", "gpt2-small", "--set", "split_weights=true", "--backward", "--out", "g.json")
    assert tessel(*words).code == 0
    mesh = ("--mesh", "h200-4")
    asked = (*mesh, "--stages-per-device", "2", "--layout-shape", "v", "--time-limit", "20", "--workers", "1")
    assert tessel("place", "g.json", *asked, "--out", "placed.json").code == 0
    assert tessel("check", "g.json", "placed.json").code == 0
    assert tessel("plan", "g.json", "placed.json", *mesh, "--split-weights", "--out", "p.json").code == 0
    assert tessel("schedule", "p.json", "--scheduler", "zb-v", "--micro-batches", "8", "--out", "s.json").code == 0
    assert tessel("check", "s.json").code == 0
    kept = json.loads(Path("placed.json").read_text())
    kept["stages"] = dict.fromkeys(kept["stages"], 0)
    Path("placed.json").write_text(json.dumps(kept))
    assert tessel("check", "g.json", "placed.json").code == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--layout-shape", "v"), "--layout-shape: is for --stages-per-device 2 or more"),
        (("--to", "megatron"), "--to: needs several stages per device, so give --stages-per-device"),
        (("--stages-per-device", "2", "--to", "onnx"), "--to: unknown format 'onnx'; the only format is megatron"),
        (
            ("--stages-per-device", "2", "--layout-shape", "v", "--to", "megatron"),
            "--to: needs a loop of stages, because Megatron-LM runs no --layout-shape v",
        ),
        (("--stages-per-device", "2", "--layout", "Et|tL"), "--layout: has stages of its own"),
        (("--stages-per-device", "2", "--non-contiguous"), "several stages per device: need a contiguous placement"),
        (("--stages-per-device", "2", "--placer", "dp"), "placer dp: places one stage per device"),
    ],
)
def test_options_that_do_not_go_with_a_layout_are_refused(
    tessel: Tessel, words: tuple[str, ...], complaint: str
) -> None:
    assert tessel("graph", "mlp-8", "--backward", "--out", "g.json").code == 0
    ended = tessel("place", "g.json", "--mesh", "h200-4", *words)
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert complaint in ended.err


def test_stages_that_cut_a_layer_have_no_layout_string(tessel: Tessel) -> None:
    assert tessel("graph", "gpt", "--preset", "gpt2-small", "--out", "g.json").code == 0
    asked = ("place", "g.json", "--mesh", "h200-4", "--stages-per-device", "3", "--time-limit", "2")
    assert tessel(*asked, "--json").document["layout"] is None
    ended = tessel(*asked, "--to", "megatron")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "is in several stages" in ended.err

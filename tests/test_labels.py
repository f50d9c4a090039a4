"""Labels of blocks (the layers they run): kept in files and through edits, ignored by searches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tessel_core.errors import InputError
from tessel_core.formats import plan_text, read_plan
from tessel_core.formats.plan_file import PLAN
from tessel_core.formats.tables import DRAFT, plan_of, tables_of
from tessel_core.model import MicroBatchPlan
from tessel_core.model.plan import label_of
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import Question
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.workbench.answers import digest

GPT = load_sample("gpt-1m-vocab-v-4")


@pytest.mark.parametrize(
    ("layers", "label"),
    [
        ([], ""),
        (["layer0", "layer0", "layer1"], "layers 0–1"),
        (["text0", "vision0", "text2"], "texts 0, 2, vision 0"),
        (["stage1.0", "stage1.1"], "stage1.0, stage1.1"),
        (["a", "b", "c", "d", "e", "f", "g"], "a, b, c, d, e, and 2 more"),
        (["x" * 500], "x" * 30),
    ],
)
def test_layers_are_said_in_few_words(layers: list[str], label: str) -> None:
    assert label_of(layers) == label


def test_every_layer_of_a_real_network_is_on_some_stage() -> None:
    labels = [block.label for block in GPT.blocks if block.kind == "forward"]
    assert labels[0].startswith("embedding, layers 0–")
    assert labels[-1].endswith("head")


@pytest.mark.parametrize("name", [sample.name for sample in list_samples() if sample.name.startswith(("gpt", "mt5"))])
def test_a_file_and_an_edit_keep_the_labels(name: str) -> None:
    plan = load_sample(name)
    assert all(block.label for block in plan.blocks)
    assert read_plan(plan_text(plan).encode()) == plan
    tables = tables_of(plan)
    assert plan_of(DRAFT.read(DRAFT.write(tables))) == plan
    longer = [{**row, "duration": int(str(row["duration"])) + 1} for row in tables.blocks]
    edited = plan_of(replace(tables, blocks=tuple(longer)))
    assert [block.label for block in edited.blocks] == [block.label for block in plan.blocks]


@pytest.mark.parametrize(
    ("name", "label", "title"),
    [
        ("F3", "layers 25–31, vocabulary", "F3 · layers 25–31, vocabulary"),
        ("B layer12–17", "layers 12–17", "B layer12–17"),
        ("F layer43–head", "layers 43–47, head", "F layer43–head"),
        ("F embedding–layer5", "embedding, layers 0–5", "F embedding–layer5"),
        ("F layer3…layer9", "layers 3, 9", "F layer3…layer9 · layers 3, 9"),
        ("F0", "", "F0"),
    ],
)
def test_a_block_says_its_layers_once(name: str, label: str, title: str) -> None:
    assert replace(GPT.blocks[0], name=name, label=label).title == title


def test_a_label_is_written_only_where_there_is_one() -> None:
    assert "label" not in plan_text(load_sample("v-shape-4"))
    assert "labels" not in DRAFT.write(tables_of(load_sample("v-shape-4")))


def test_answers_are_filed_without_labels() -> None:
    def filed(plan: MicroBatchPlan) -> str:
        return digest(Question("tessel", plan, 8, TesselConfig()))

    assert filed(GPT) == filed(GPT.unlabelled)


@pytest.mark.parametrize("label", ["x" * 201, "two\nlines", 7])
def test_a_bad_label_is_refused_with_its_place(label: object) -> None:
    document = PLAN.write(GPT)
    document["blocks"][1]["label"] = label
    with pytest.raises(InputError, match=r"blocks\[1\]|block "):
        PLAN.read(document)

"""The strategies form: default answers, saved answers, and the resulting sweep."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.stores import simple_workspace

from tessel_core.errors import InputError
from tessel_core.formats import read_workspace, workspace_text
from tessel_core.networks import build_shape
from tessel_core.strategies.families import FAMILIES, find_family
from tessel_core.strategies.form import (
    CONTEXT,
    CONTEXT_METHOD,
    EXPERT,
    FAMILY,
    MESH,
    MORE_CUTS,
    Answer,
    asked_by,
    check_answers,
    first_size_fields,
    mesh_named,
    mesh_title,
    objection,
    size_fields,
)
from tessel_core.strategies.strategy import NO_EXPERTS, NO_SEQUENCE, Semantics
from tessel_core.workbench.workspace import workspace_file, workspace_of


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_usual_makes_a_sweep(family: str) -> None:
    asked = asked_by({"family": family})
    assert asked.family == family
    assert asked.semantics is Semantics.DEFAULT
    found = asked.grid.configurations(find_family(family), len(mesh_named(asked.mesh).devices))
    assert len(found) == (420 if family == "mlp" else 210)


def test_every_answer_counts() -> None:
    answers: dict[str, Answer] = {
        **{"family": "gpt", "gpt-size": "gpt2,gpt2-xl", "gpt-layers": "4,6", "gpt-context": " ", "gpt-mode": "decode"},
        **{"data": "1..3", "tensor": "2", "pipeline": "1,2", "micro_batches": "4", "orders": "1f1b,gpipe"},
        **{"semantics": "distir", "mesh": "distir-16", "recompute": "none,selective", "mlp-layers": "not looked at"},
    }
    asked = asked_by(answers)
    sizes = dict(asked.grid.sizes)
    assert sizes["size"] == ("gpt2", "gpt2-xl")
    assert sizes["layers"] == (4, 6)
    assert "context" not in sizes, "left as it is usual"
    grid = asked.grid
    assert (grid.data, grid.tensor, grid.pipeline, grid.micro_batches) == ((1, 2, 3), (2,), (1, 2), (4,))
    assert (grid.schedule, grid.recompute) == (("1f1b", "gpipe"), ("none", "selective"))
    assert asked.semantics is Semantics.DISTIR


def test_more_ways_to_cut_count_where_they_have_an_effect() -> None:
    more: dict[str, Answer] = {
        **{"zero": "0,2,3", "context": "1,2", "context_method": "ring,all-to-all", "expert": "1,4"},
        **{"sequence_parallel": True, "grad_dtype": "weights,fp32", "attention": "fused,unfused", "compiled": True},
    }
    grid = asked_by({"family": "moe", "moe-dtype": "bf16,fp8", **more}).grid
    assert (grid.zero, grid.context, grid.context_method) == ((0, 2, 3), (1, 2), ("ring", "all-to-all"))
    assert (grid.expert, grid.grad_dtype, grid.attention) == ((1, 4), ("", "fp32"), ("fused", "unfused"))
    assert (grid.sequence_parallel, grid.compiled) == (True, True)
    assert dict(grid.sizes)["dtype"] == ("bf16", "fp8")
    assert asked_by({"family": "gpt", **more}).grid.expert == (1,), "a GPT has no experts"
    assert asked_by({"family": "gpt", **more}).grid.context == (1, 2)
    assert asked_by({"family": "mlp", **more}).grid.context == (1,), "an MLP has no sequence"


def test_a_field_without_effect_says_why() -> None:
    assert objection(CONTEXT, {"family": "resnet"}) == NO_SEQUENCE.capitalize() + "."
    assert objection(EXPERT, {"family": "gpt"}) == NO_EXPERTS.capitalize() + "."
    assert (
        objection(CONTEXT_METHOD, {"family": "gpt"}) == "Devices share tokens only if the context degree C is above 1."
    )
    assert not any(objection(field, {"family": "moe", "context": "2"}) for field in MORE_CUTS)


def test_few_sizes_come_first() -> None:
    names = [field.name for field in first_size_fields("llama")]
    assert names == [f"llama-{name}" for name in ("size", "layers", "sequence", "batch", "dtype", "mode")]
    assert len(size_fields("llama")) == 14


def test_words_that_are_no_range_are_told_by_the_field() -> None:
    with pytest.raises(InputError, match="Replicas D: must be numbers and ranges such as"):
        asked_by({"data": "many"})
    with pytest.raises(InputError, match="schedule: its range has no values"):
        asked_by({"orders": ""})
    with pytest.raises(InputError, match="ZeRO: its range has no values"):
        asked_by({"zero": ""})
    with pytest.raises(InputError, match="Context C: must be at least 1, got 0"):
        asked_by({"family": "gpt", "context": "0"})


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"colour": "red"}, "strategies: colour: is not known"),
        ({"data": True}, "strategies: data: cannot be True"),
        ({"data": 3}, "strategies: data: cannot be 3"),
        ({"zero": "yes"}, "strategies: zero: 'yes' is not known"),
        ({"recompute": "some"}, "strategies: recompute: 'some' is not known"),
        ({"family": "cnn"}, "strategies: family: 'cnn' is not known"),
        ({"mesh": "h200-16,h200-8"}, "strategies: mesh: must be one choice, got 2"),
        ({"mesh": ""}, "strategies: mesh: must be one choice, got 0"),
        ({"orders": "1f1b,mine"}, "strategies: orders: 'mine' is not known"),
    ],
)
def test_answers_from_a_file_are_checked(answers: dict[str, object], told: str) -> None:
    with pytest.raises(InputError) as caught:
        check_answers(answers)
    assert str(caught.value) == told


def test_a_workspace_keeps_them_also_those_that_make_no_sense() -> None:
    file = simple_workspace(build_shape("m-shape"))
    file = replace(file, rest={**file.rest, "strategies": {"data": "1..x", "recompute": "none,full"}})
    work = workspace_of(read_workspace(workspace_text(file).encode()), "token")
    assert work.strategies == {"data": "1..x", "recompute": "none,full"}
    assert workspace_file(work) == file
    before = replace(file, rest={**file.rest, "strategies": {"data": "1..x", "recompute": True}})
    assert workspace_of(before, "token").strategies == work.strategies, "as it was when there was one way to recompute"
    for switched, stages in ((True, {"zero": "0,1"}), (False, {})):
        assert check_answers({"zero": switched}) == stages, "as it was when ZeRO was on or off"
    usual = replace(file, rest={**file.rest, "strategies": {"data": "1,2,4,8,16"}})
    assert workspace_of(usual, "token").strategies == {}, "what is usual is not kept"


def test_a_workspace_of_before_has_none() -> None:
    text = workspace_text(simple_workspace(build_shape("m-shape")))
    assert workspace_of(read_workspace(text.replace(', "strategies": {}', "").encode()), "token").strategies == {}


def test_every_choice_has_a_title() -> None:
    assert all(mesh_title(name) and mesh_named(name).devices for name in MESH.choices)
    assert set(FAMILY.choices) == set(FAMILIES)

"""What is asked about strategies: answers that are usual, answers that are kept, and the sweep that they make."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers.stores import simple_workspace

from tessel_core.errors import InputError
from tessel_core.formats import read_workspace, workspace_text
from tessel_core.networks import build_shape
from tessel_core.strategies.families import FAMILIES, find_family
from tessel_core.strategies.form import FAMILY, MESH, Answer, asked_by, check_answers, mesh_named, mesh_title
from tessel_core.strategies.strategy import Semantics
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


def test_words_that_are_no_range_are_told_by_the_field() -> None:
    with pytest.raises(InputError, match="Replicas D: must be numbers and ranges such as"):
        asked_by({"data": "many"})
    with pytest.raises(InputError, match="schedule: its range has no values"):
        asked_by({"orders": ""})


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ({"colour": "red"}, "strategies: colour: is not known"),
        ({"data": True}, "strategies: data: cannot be True"),
        ({"data": 3}, "strategies: data: cannot be 3"),
        ({"zero": "yes"}, "strategies: zero: cannot be 'yes'"),
        ({"recompute": "some"}, "strategies: recompute: 'some' is not known"),
        ({"family": "cnn"}, "strategies: family: 'cnn' is not known"),
        ({"mesh": "h200-16,h200-8"}, "strategies: mesh: takes one choice, got 2"),
        ({"mesh": ""}, "strategies: mesh: takes one choice, got 0"),
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
    usual = replace(file, rest={**file.rest, "strategies": {"data": "1,2,4,8,16"}})
    assert workspace_of(usual, "token").strategies == {}, "what is usual is not kept"


def test_a_workspace_of_before_has_none() -> None:
    text = workspace_text(simple_workspace(build_shape("m-shape")))
    assert workspace_of(read_workspace(text.replace(', "strategies": {}', "").encode()), "token").strategies == {}


def test_every_choice_has_a_title() -> None:
    assert all(mesh_title(name) and mesh_named(name).devices for name in MESH.choices)
    assert set(FAMILY.choices) == set(FAMILIES)

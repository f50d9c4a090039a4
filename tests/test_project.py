"""Programs per rank: together they are the whole program, and each uses only its own device."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from helpers.programs import gpt_inputs, random_inputs, spread
from helpers.training import gpt_training, mlp_training

from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.operators import find_operator
from tessel_core.ir.operators.operator import Array
from tessel_core.ir.program import Program
from tessel_core.ir.project import RankProgram, project, rank_text
from tessel_core.ir.transforms.update import AdamUpdate, ShardedOptimizer
from tessel_core.ir.types import TensorType
from tessel_core.networks.gpt import GptSpec
from tessel_core.networks.mlp import MlpSpec

SPEC = GptSpec(layers=3, hidden=12, heads=6, vocabulary=7, sequence=4, batch=12)
DEGREES = [(1, 1, 1, 1), (2, 1, 1, 1), (1, 3, 1, 1), (1, 1, 3, 4), (2, 2, 2, 2), (3, 2, 3, 4)]


def model(family: str, degrees: tuple[int, int, int, int]) -> Distributed:
    if family == "mlp":
        return spread(mlp_training(MlpSpec(5, 12, 24)), *degrees)
    return spread(gpt_training(SPEC), *degrees, step=ShardedOptimizer(AdamUpdate()))


@pytest.mark.parametrize("family", ["mlp", "gpt"])
@pytest.mark.parametrize("degrees", DEGREES)
def test_the_ranks_together_are_the_whole(family: str, degrees: tuple[int, int, int, int]) -> None:
    program = model(family, degrees).program
    ranks = project(program)
    assert tuple(ranks) == program.devices
    found: dict[int, list[int]] = {}
    for rank in ranks.values():
        places = [each.place for each in rank.ops]
        assert places == sorted(set(places))
        for each in rank.ops:
            assert each.op == program.ops[each.place]
            values = (*each.inputs, *each.outputs)
            assert values
            assert {program.types[value].device for value in values} == {rank.rank}
            found.setdefault(each.place, []).extend(values)
    for place, op in enumerate(program.ops):
        assert sorted(found[place]) == sorted((*op.inputs, *op.outputs))
    for whole, parts in (
        (program.inputs, [rank.inputs for rank in ranks.values()]),
        (program.outputs, [rank.outputs for rank in ranks.values()]),
    ):
        assert sorted(whole) == sorted(value for part in parts for value in part)


@pytest.mark.parametrize("degrees", DEGREES)
def test_groups_are_those_that_share_an_operation(degrees: tuple[int, int, int, int]) -> None:
    program = model("gpt", degrees).program
    ranks = project(program)
    sharing = defaultdict[int, set[int]](set)
    for rank in ranks.values():
        for each in rank.ops:
            sharing[each.place].add(rank.rank)
    for rank in ranks.values():
        for each in rank.ops:
            assert sharing[each.place] == (set(each.group) or {rank.rank})
            assert bool(each.group) == bool(find_operator(each.op.kind).pattern)


def run_by_rank(program: Program, given: dict[int, Array]) -> dict[int, Array]:
    """Run each rank as far as possible, in turn. A communication runs once its whole group has reached it."""
    ranks, known = project(program), dict(given)
    at = dict.fromkeys(ranks, 0)
    while any(at[rank] < len(ranks[rank].ops) for rank in ranks):
        moved = False
        for rank, mine in reversed(ranks.items()):
            while at[rank] < len(mine.ops):
                each = mine.ops[at[rank]]
                group = each.group or (rank,)
                if not all(is_at(ranks[other], at[other], each.place) for other in group):
                    break
                arrays = [known[value] for value in each.op.inputs]
                made = find_operator(each.op.kind).compute(arrays, dict(each.op.attributes))
                known.update(zip(each.op.outputs, made, strict=True))
                for other in group:
                    at[other] += 1
                moved = True
        assert moved, "all ranks wait"
    return known


def is_at(rank: RankProgram, at: int, place: int) -> bool:
    return at < len(rank.ops) and rank.ops[at].place == place


@pytest.mark.parametrize("degrees", DEGREES)
@pytest.mark.parametrize("family", ["mlp", "gpt"])
def test_ranks_that_run_beside_each_other_make_what_the_whole_makes(
    family: str, degrees: tuple[int, int, int, int]
) -> None:
    original = mlp_training(MlpSpec(5, 12, 24)) if family == "mlp" else gpt_training(SPEC)
    changed = spread(original, *degrees)
    whole = random_inputs(original, 2) if family == "mlp" else gpt_inputs(original, SPEC, 2)
    known = run_by_rank(
        changed.program, {value: piece.of(whole[piece.name]) for value, piece in changed.piece_of.items()}
    )
    for value, (_, wanted) in zip(changed.program.outputs, changed.run(whole), strict=True):
        np.testing.assert_allclose(known[value], wanted, rtol=1e-3, atol=1e-4)


def test_the_text_of_both_ends_of_a_send() -> None:
    build = ProgramBuilder("pair")
    x = build.input("x", TensorType("fp32", (4, 6), 1))
    there = build.one("send", [build.one("relu", [x])], to=2)
    ranks = project(build.finish([there]))
    assert rank_text(ranks[1]) == (
        "program pair rank 1\n%x: fp32[4, 6]@1\n%1: fp32[4, 6]@1 = relu(%x)\nsend(%1) {to=2} among 1 2\nreturn\n"
    )
    assert rank_text(ranks[2]) == ("program pair rank 2\n%2: fp32[4, 6]@2 = receive() {to=2} among 1 2\nreturn %2\n")

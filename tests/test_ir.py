"""Programs: the table of operators, the verifier's sentences, and the text form."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tessel_core.errors import InputError
from tessel_core.ir import OPERATORS, ProgramBuilder, TensorType, execute, program_text, read_program, verify
from tessel_core.ir.execute import NUMPY_TYPES
from tessel_core.ir.infer import inferred
from tessel_core.ir.program import Attributes, AttributeValue, Op, Program

X = TensorType("fp32", (4, 6), 1)
EXAMPLES: dict[str, tuple[tuple[TensorType, ...], Attributes]] = {
    "identity": ((X,), ()),
    "add": ((X, X), ()),
    "concat": ((X, X, X), (("axis", 1),)),
    "split": ((X,), (("axis", 1), ("parts", 3))),
    "part": ((X,), (("axis", 0), ("index", 1), ("parts", 2))),
    "matmul": ((X, TensorType("fp32", (6, 5), 1)), ()),
    "matmul_grad": ((X, TensorType("fp32", (6, 5), 1), TensorType("fp32", (4, 5), 1)), ()),
    "relu": ((X,), ()),
    "relu_grad": ((X, X), ()),
    "loss": ((X, X, TensorType("int32", (), 1)), ()),
    "loss_grad": ((X, X, TensorType("int32", (), 1)), ()),
    "sgd": ((X, X, X, X), (("rate", 0.1),)),
    "send": ((X,), (("to", 2),)),
    "allreduce": (tuple(X.on(d) for d in (1, 2, 3)), ()),
    "allgather": (tuple(X.on(d) for d in (1, 2, 3)), (("axis", 0),)),
    "reduce_scatter": (tuple(X.on(d) for d in (1, 2, 3)), (("axis", 1),)),
    "broadcast": ((X,), (("devices", (1, 2, 5)),)),
    "scatter": ((X,), (("axis", 0), ("devices", (2, 3)))),
    "gather": (tuple(X.on(d) for d in (1, 2, 3)), (("axis", 0), ("to", 1))),
    "reduce": (tuple(X.on(d) for d in (1, 2, 3)), (("to", 2),)),
    "block": ((X,), (("bytes", (3, 0)), ("devices", (1,)), ("on", (1, 1)), ("seconds", 0.5))),
    "delay": ((X,), (("seconds", 0.25), ("to", 2))),
}


def test_every_operator_has_an_example() -> None:
    assert EXAMPLES.keys() == OPERATORS.keys()


@pytest.mark.parametrize("kind", OPERATORS)
def test_the_meaning_has_the_inferred_shapes(kind: str) -> None:
    types, attributes = EXAMPLES[kind]
    draw = np.random.default_rng(1)
    arrays = [draw.normal(size=each.shape).astype(NUMPY_TYPES[each.dtype]) + 1 for each in types]
    made = OPERATORS[kind].compute(arrays, dict(attributes))
    wanted = inferred(kind, types, attributes)
    assert [each.shape for each in made] == [each.shape for each in wanted]
    assert all(array.dtype == NUMPY_TYPES[each.dtype] for array, each in zip(made, wanted, strict=True))
    work = OPERATORS[kind].work(types, wanted, dict(attributes))
    assert work.flops >= 0
    assert work.bytes >= 0
    assert bool(OPERATORS[kind].pattern) == (len({each.device for each in (*types, *wanted)}) > 1)


@pytest.mark.parametrize("kind", OPERATORS)
def test_wrong_inputs_are_refused_in_a_sentence(kind: str) -> None:
    types, attributes = EXAMPLES[kind]
    for bad in ((), (*types, TensorType("fp16", (7,), 4)), (TensorType("fp64", (3,), 9), *types[1:], X)):
        with pytest.raises(InputError):
            inferred(kind, bad, attributes)
    with pytest.raises(InputError, match="takes no attribute colour"):
        inferred(kind, types, (*attributes, ("colour", 1)))
    for name, _ in attributes:
        with pytest.raises(InputError, match=f"has no attribute {name}"):
            inferred(kind, types, tuple(each for each in attributes if each[0] != name))


@pytest.mark.parametrize("kind", ["relu", "matmul"])
def test_gradients_are_slopes(kind: str) -> None:
    """The backward operator against differences of the forward one."""
    draw = np.random.default_rng(3)
    types, _ = EXAMPLES[kind]
    arrays = [draw.normal(size=each.shape) for each in types]
    (out,) = OPERATORS[kind].compute(arrays, {})
    up = draw.normal(size=out.shape)
    gradients = OPERATORS[f"{kind}_grad"].compute([*arrays, up], {})
    for array, gradient in zip(arrays, gradients, strict=False):
        step = np.zeros_like(array)
        step[1, 2] = 1e-6
        moved = [each + step if each is array else each for each in arrays]
        slope = ((OPERATORS[kind].compute(moved, {})[0] - out) * up).sum() / 1e-6
        assert gradient[1, 2] == pytest.approx(slope, rel=1e-4, abs=1e-6)


def pair() -> Program:
    build = ProgramBuilder("pair")
    x, w = build.input("x", X), build.input("w", TensorType("fp32", (6, 2), 1))
    y = build.one("matmul", [x, w])
    return build.finish([build.one("send", [y], to=2)])


def test_a_sound_program_is_verified_and_runs() -> None:
    program = pair()
    verify(program)
    x, w = np.ones((4, 6)), np.full((6, 2), 2.0)
    (out,) = execute(program, {0: x, 1: w})
    np.testing.assert_array_equal(out, x @ w)


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda p: replace(p, ops=p.ops[::-1]), "operation 0 (send): takes %2 before it is made"),
        (lambda p: replace(p, ops=p.ops[1:]), "operation 0 (send): takes %2 which nothing makes"),
        (lambda p: replace(p, ops=(*p.ops, p.ops[0])), "operation 2 (matmul): makes %2 a second time"),
        (lambda p: replace(p, outputs=(9,)), "outputs: names %9, which nothing makes"),
        (
            lambda p: replace(p, ops=(Op("matmux", (0, 1), (2,)), *p.ops[1:])),
            "operation 0 (matmux): is not known, known are " + ", ".join(sorted(OPERATORS)),
        ),
        (
            lambda p: replace(p, types=(*p.types[:2], X, p.types[3])),
            "operation 0 (matmul): makes fp32[4, 6]@1, from its inputs it makes fp32[4, 2]@1",
        ),
        (lambda p: replace(p, types=(*p.types, X)), "types: name %4, which nothing makes"),
    ],
)
def test_the_verifier_names_what_is_wrong(spoil, why: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(InputError) as told:
        verify(spoil(pair()))
    assert str(told.value) == why


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("program pair", "programme", "p: line 1: must be 'program NAME', got 'programme'"),
        ("%x: fp32", "%x: fp31", "p: line 2: dtype must be one of"),
        ("matmul(%x, %w)", "matmul(%x, %v)", "p: line 4: takes %v, which nothing before it makes"),
        ("matmul(%x, %w)", "matmul(%x, %w", "p: line 4: must be '%RESULT: TYPE = OPERATOR(%INPUT, …)'"),
        (
            "{to=2}",
            "{to=two}",
            "p: line 5: an attribute must be a number, a quoted text or a list like (1 2), got 'two'",
        ),
        ("{to=2}", "{to=1}", "p: operation 1 (send): goes to device 1, where the tensor is already"),
        ("return %3", "", "p: end: the line 'return …' is missing"),
        ("return %3", "return %3\nreturn %3", "p: line 7: comes after return, which ends a program"),
    ],
)
def test_the_reader_names_the_line(old: str, new: str, why: str) -> None:
    with pytest.raises(InputError) as told:
        read_program(program_text(pair()).replace(old, new, 1), "p")
    assert str(told.value).startswith(why)


@given(st.text(alphabet="programx%:= ()[]{}@,0123fp32\nreturnadd;stage-", max_size=200))
def test_any_text_is_a_program_or_one_sentence(text: str) -> None:
    with suppress(InputError):
        program = read_program(text)
        assert program_text(read_program(program_text(program))) == program_text(program)


def test_an_input_of_another_shape_is_named() -> None:
    with pytest.raises(InputError, match=r"^inputs: %x must have shape \(4, 6\), got \(3, 6\)"):
        execute(pair(), {0: np.ones((3, 6)), 1: np.ones((6, 2))})
    with pytest.raises(InputError, match=r"^inputs: %w is missing"):
        execute(pair(), {0: np.ones((4, 6))})


def test_a_tensor_may_be_empty_but_not_less() -> None:
    assert TensorType("int8", (0,), 1).bytes == 0
    with pytest.raises(InputError, match=r"int8\[-1\]@1: sizes must be whole numbers of at least 0"):
        TensorType("int8", (-1,), 1)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"seconds": -1.0}, "seconds must be at least 0, got -1.0"),
        ({"on": (1,)}, "bytes and on differ in length, 2 and 1"),
        ({"on": (1, 3)}, "on must name some of its devices"),
        ({"bytes": 3}, "bytes must be a list like"),
        ({"devices": (2, 1, 2)}, "devices must list distinct devices"),
        ({"devices": (2,), "on": (2, 2)}, "takes inputs from its devices"),
    ],
)
def test_what_a_block_says_must_go_together(changed: dict[str, AttributeValue], why: str) -> None:
    types, attributes = EXAMPLES["block"]
    with pytest.raises(InputError, match=why):
        inferred("block", types, tuple(sorted((dict(attributes) | changed).items())))

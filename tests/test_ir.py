"""Programs: the table of operators, the verifier's sentences, and the text form."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from helpers.operators import ADAM, EXAMPLES, VARYING_ROWS, X, drawn
from hypothesis import given
from hypothesis import strategies as st

from tessel_core.errors import InputError
from tessel_core.ir import read_program
from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.execute import execute
from tessel_core.ir.operators import OPERATORS, inferred
from tessel_core.ir.operators.arrays import NUMPY_TYPES
from tessel_core.ir.operators.operator import Array, Values, Work
from tessel_core.ir.program import AttributeValue, Op, Program
from tessel_core.ir.text import program_text
from tessel_core.ir.types import TensorType, places_here
from tessel_core.ir.verify import verify


def test_every_operator_has_an_example() -> None:
    assert EXAMPLES.keys() == OPERATORS.keys()


def test_what_is_opaque_has_costs_and_no_meaning() -> None:
    types, attributes = EXAMPLES["opaque"]
    assert inferred("opaque", types, attributes) == (TensorType("fp32", (4, 2), 1), TensorType("int64", (), 1))
    assert OPERATORS["opaque"].work(types, (), dict(attributes)) == Work(3.0, 9.0)
    with pytest.raises(InputError) as told:
        OPERATORS["opaque"].compute(drawn(types, 1), dict(attributes))
    assert str(told.value) == "operator top_k: has costs but no computation, so the program cannot be executed"


@pytest.mark.parametrize("kind", [each for each in OPERATORS if each != "opaque"])
def test_the_meaning_has_the_inferred_shapes(kind: str) -> None:
    types, attributes = EXAMPLES[kind]
    arrays = drawn(types, 1)
    if kind == "return_rows":
        arrays[::2] = OPERATORS["exchange_rows"].compute(arrays, dict(attributes))
    made = OPERATORS[kind].compute(arrays, dict(attributes))
    wanted = inferred(kind, types, attributes)
    if kind in VARYING_ROWS:
        assert [each.shape[1:] for each in made] == [each.shape[1:] for each in wanted]
        assert sum(len(each) for each in made) == sum(each.shape[0] for each in wanted)
    else:
        assert [each.shape for each in made] == [each.shape for each in wanted]
    assert all(array.dtype == NUMPY_TYPES[each.dtype] for array, each in zip(made, wanted, strict=True))
    work = OPERATORS[kind].work(types, wanted, dict(attributes))
    assert work.flops >= 0
    assert work.bytes >= 0
    assert bool(OPERATORS[kind].pattern) == (len({each.device for each in (*types, *wanted)}) > 1)


@pytest.mark.parametrize("kind", OPERATORS)
def test_wrong_inputs_are_refused_in_a_sentence(kind: str) -> None:
    types, attributes = EXAMPLES[kind]
    nothing = () if kind == "opaque" else ((),)
    for bad in (*nothing, (*types, TensorType("fp16", (7,), 4)), (TensorType("fp64", (3,), 9), *types[1:], X)):
        with pytest.raises(InputError):
            inferred(kind, bad, attributes)
    with pytest.raises(InputError, match="has no attribute colour"):
        inferred(kind, types, (*attributes, ("colour", 1)))
    for name, _ in attributes:
        with pytest.raises(InputError, match=f"needs the attribute {name}"):
            inferred(kind, types, tuple(each for each in attributes if each[0] != name))


SLOPES: dict[str, tuple[Sequence[int], bool]] = {
    "relu": ((0,), True),
    "gelu": ((0,), True),
    "matmul": ((0, 1), True),
    "bias": ((1,), True),
    "layer_norm": ((0, 1, 2), True),
    "embedding": ((0,), True),
    "attention": ((0, 1, 2), True),
    "cross_entropy": ((0,), False),
}
"""For each operator, the inputs whose slopes its gradient operator computes, and whether it takes the output's."""
GRADIENT_TAKES = {"bias": (), "layer_norm": (0, 1)}
"""Gradient operators that do not take all inputs."""
OF_A_PART = {"attention_block", "vocabulary_loss"}
"""Operators of one of several devices. The transform that cuts the whole operator writes their gradients."""


@pytest.mark.parametrize("causal", [0, 1])
@pytest.mark.parametrize("kind", SLOPES)
def test_gradients_are_slopes(kind: str, causal: int) -> None:
    """The backward operator agrees with central differences of the forward one, for every element of every input."""
    (inputs, takes_gradient), (types, attributes) = SLOPES[kind], EXAMPLES[kind]
    values = {name: causal if name == "causal" else value for name, value in attributes}
    backward = dict(EXAMPLES[f"{kind}_grad"][1]) | values
    draw, forward = np.random.default_rng(3), OPERATORS[kind].compute
    exact = [each.shaped(each.shape) if "int" in each.dtype else replace(each, dtype="fp64") for each in types]
    arrays = drawn(exact, 3)
    arrays = [each if each.dtype.kind == "i" else each - 1.2 for each in arrays]
    (out,) = forward(arrays, values)
    up = draw.normal(size=out.shape) if takes_gradient else np.ones(out.shape)
    taken = [arrays[i] for i in GRADIENT_TAKES.get(kind, range(len(arrays)))]
    gradients = OPERATORS[f"{kind}_grad"].compute([*taken, up] if takes_gradient else taken, backward)
    for i, gradient in zip(inputs, gradients, strict=True):
        for place in np.ndindex(arrays[i].shape):
            step = np.zeros_like(arrays[i])
            step[place] = 1e-6
            ends = [forward([*arrays[:i], arrays[i] + by, *arrays[i + 1 :]], values)[0] for by in (step, -step)]
            slope = ((ends[0] - ends[1]) * up).sum() / 2e-6
            assert gradient[place] == pytest.approx(slope, rel=1e-5, abs=1e-7)


def test_fused_operators_mean_what_they_are_made_of() -> None:
    """Their gradients equal those of their parts."""
    x, w, b = drawn(EXAMPLES["linear"][0], 4)
    np.testing.assert_array_equal(OPERATORS["linear"].compute([x, w, b], {})[0], x @ w + b)
    x, y, b = drawn(EXAMPLES["residual"][0], 4)
    np.testing.assert_array_equal(OPERATORS["residual"].compute([x, y, b], {})[0], x + (y + b))


def test_every_gradient_is_compared_with_slopes() -> None:
    """In this module, or through the gradient rule that writes it."""
    assert {*SLOPES, "loss"} <= {kind for kind in OPERATORS if f"{kind}_grad" in OPERATORS}
    for kind, operator in OPERATORS.items():
        assert operator.gradient or f"{kind}_grad" not in OPERATORS or kind in OF_A_PART
    found = OPERATORS["loss_grad"].compute([np.array(3.0), np.array(1.0), np.array(4)], {})
    assert found[0] == 1.0  # of (x - 1)² / 4 at 3


@pytest.mark.parametrize("more", [{"causal": 0}, {"causal": 1}, {"cap": 2.0, "causal": 1, "window": 3}], ids=str)
def test_blocks_of_a_ring_are_the_whole_attention(more: Values) -> None:
    """Output and gradients of two devices. Each has half of the tokens, and sees each half of the keys in turn."""
    draw, parts, heads = np.random.default_rng(1), 2, {"head_size": 3, **more}
    q, k, v, dz = (draw.normal(size=(2, 8, 12)) for _ in range(4))
    (out,) = OPERATORS["attention"].compute([q, k, v], heads)
    wanted = OPERATORS["attention_grad"].compute([q, k, v, dz], heads)
    found = [np.zeros_like(each) for each in (q, k, v)]
    places = [places_here(8 // parts, index, parts, bool(more["causal"])) for index in range(parts)]
    for index, mine in enumerate(places):
        steps = [(step, places[(index - step) % parts]) for step in range(parts)]
        each = {"index": index, "parts": parts, **heads}
        merged: Sequence[Array] = ()
        for step, keys in steps:
            made = OPERATORS["attention_block"].compute([q[:, mine], k[:, keys], v[:, keys]], {"step": step, **each})
            merged = OPERATORS["attention_merge"].compute([*merged, *made], {}) if merged else made
        np.testing.assert_allclose(merged[0], out[:, mine], rtol=1e-12, atol=1e-12)
        for step, keys in steps:
            taken = [q[:, mine], k[:, keys], v[:, keys], *merged, dz[:, mine]]
            slopes = OPERATORS["attention_block_grad"].compute(taken, {"step": step, **each})
            for whole, at, slope in zip(found, (mine, keys, keys), slopes, strict=True):
                whole[:, at] += slope
    for mine, right in zip(found, wanted, strict=True):
        np.testing.assert_allclose(mine, right, rtol=1e-12, atol=1e-12)


def test_parts_of_a_vocabulary_are_the_whole_loss() -> None:
    draw, n = np.random.default_rng(1), np.array(4)
    logits, targets = draw.normal(size=(4, 6)), np.array([0, 5, 3, 2])
    halves = list(enumerate(np.split(logits, 2, axis=1)))
    scores = [
        OPERATORS["vocabulary_scores"].compute([half, targets], {"index": i, "parts": 2})[0] for i, half in halves
    ]
    every = np.concatenate(scores, axis=-1)
    (loss,) = OPERATORS["vocabulary_loss"].compute([every, n], {"dtype": "fp64"})
    np.testing.assert_allclose(loss, OPERATORS["cross_entropy"].compute([logits, targets, n], {})[0], rtol=1e-12)
    slopes = [
        OPERATORS["vocabulary_loss_grad"].compute([half, targets, every, n], {"index": i, "parts": 2})[0]
        for i, half in halves
    ]
    (wanted,) = OPERATORS["cross_entropy_grad"].compute([logits, targets, n], {})
    np.testing.assert_allclose(np.concatenate(slopes, axis=1), wanted, rtol=1e-12, atol=1e-15)


def test_rows_go_to_their_experts_and_come_back() -> None:
    """Three devices have two experts each. All rows of the first device stay there."""
    draw, values = np.random.default_rng(1), {"experts": 6}
    choices = [np.array(each) for each in ([[0, 1], [1, 0]], [[5, 0], [2, 4]], [[1, 2], [1, 3]])]
    rows = [draw.normal(size=(4, 3)) for _ in choices]
    pairs = [each for both in zip(rows, choices, strict=True) for each in both]
    there = OPERATORS["exchange_choice"].compute(choices, values)
    assert [each[:, 0].tolist() for each in there] == [[0, 0, 1, 1, 0, 1, 1], [0, 0, 1], [0, 1]]
    moved = OPERATORS["exchange_rows"].compute(pairs, values)
    np.testing.assert_array_equal(moved[0], [*rows[0], rows[1][0], *rows[2][:2]])
    np.testing.assert_array_equal(moved[2], rows[1][2:])
    back = OPERATORS["return_rows"].compute(
        [each for both in zip(moved, choices, strict=True) for each in both], values
    )
    for mine, right in zip(back, rows, strict=True):
        np.testing.assert_array_equal(mine, right)


def test_a_causal_query_sees_no_later_key() -> None:
    types, _ = EXAMPLES["attention"]
    q, k, v = drawn(types, 5)
    values = {"causal": 1, "head_size": 3}
    (before,) = OPERATORS["attention"].compute([q, k, v], values)
    k[:, -1], v[:, -1] = 9, 9
    (after,) = OPERATORS["attention"].compute([q, k, v], values)
    np.testing.assert_array_equal(before[:, :-1], after[:, :-1])
    assert not np.allclose(before[:, -1], after[:, -1])


@pytest.mark.parametrize(("causal", "pairs"), [(0, 15), (1, 12)])
def test_attention_works_on_what_is_visible(causal: int, pairs: int) -> None:
    """3 queries, 5 keys, 12 columns, batch 2. Causal queries see 3, 4 and 5 keys."""
    types, _ = EXAMPLES["attention"]
    values = {"causal": causal, "head_size": 3}
    assert OPERATORS["attention"].work(types, types[:1], values).flops == 2 * 2 * 2 * 12 * pairs
    backward = OPERATORS["attention_grad"].work((*types, types[0]), types, values)
    assert backward.flops == 5 * 2 * 2 * 12 * pairs


def test_a_bias_of_zeros_changes_nothing() -> None:
    """Sample b takes bias b mod g, because the windows of several images share their biases."""
    (q, k, v, bias), attributes = drawn(EXAMPLES["attention_bias"][0], 5), dict(EXAMPLES["attention_bias"][1])
    (plain,) = OPERATORS["attention"].compute([q, k, v], {**attributes, "causal": 0})
    (found,) = OPERATORS["attention_bias"].compute([q, k, v, 0 * bias], attributes)
    np.testing.assert_array_equal(found, plain)
    bias[0] = 0
    (found,) = OPERATORS["attention_bias"].compute([q, k, v, bias], attributes)
    np.testing.assert_array_equal(found[::2], plain[::2])
    assert not np.allclose(found[1::2], plain[1::2])


def test_work_of_gradients() -> None:
    """Both gradients of a convolution are two products. A bias is read once, and added to every score."""

    def work(kind: str) -> Work:
        types, attributes = EXAMPLES[kind]
        return OPERATORS[kind].work(types, inferred(kind, types, attributes), dict(attributes))

    apart = work("conv_input_grad"), work("conv_weight_grad")
    assert work("conv_grad") == Work(sum(each.flops for each in apart), sum(each.bytes for each in apart))
    assert apart[0].flops == 2 * (2 * 6 * 4 * 2) * 6
    types, values = EXAMPLES["attention_bias"][0], {"causal": 0, "head_size": 3}
    plain = OPERATORS["attention"].work(types[:3], types[:1], values)
    assert work("attention_bias") == Work(plain.flops + 4 * 4 * 3 * 5, plain.bytes + types[3].bytes)


@pytest.mark.parametrize(
    ("kind", "place", "shape", "why"),
    [
        ("attention_bias", 3, (2, 4, 3, 4), r"needs a bias \[g, 4, 3, 5\] like the queries"),
        ("attention_bias", 3, (3, 4, 3, 5), "needs a number of biases that divides the batch"),
        ("batch_norm_training", 1, (4,), "then scale and shift of channels"),
        ("conv_weight_grad", 1, (2, 6, 4, 3), "needs the gradient of a convolution"),
        ("take_grad", 1, (3, 2, 6), "needs the gradient of numbers"),
        ("strided_slice_grad", 0, (1, 3), "needs the gradient of a slice"),
    ],
)
def test_gradients_and_new_operators_say_what_does_not_fit(
    kind: str, place: int, shape: tuple[int, ...], why: str
) -> None:
    types, attributes = EXAMPLES[kind]
    changed = [each.shaped(shape) if i == place else each for i, each in enumerate(types)]
    with pytest.raises(InputError, match=why):
        inferred(kind, changed, attributes)


def test_a_cut_of_packed_columns_holds_whole_heads() -> None:
    qkv = np.arange(2 * 5 * 24.0).reshape(2, 5, 24)
    unpack = OPERATORS["unpack_qkv"].compute
    whole = unpack([qkv], {"head_size": 2})
    halves = [unpack([half], {"head_size": 2}) for half in np.split(qkv, 2, axis=2)]
    for i, each in enumerate(whole):
        np.testing.assert_array_equal(np.concatenate([half[i] for half in halves], axis=2), each)
    np.testing.assert_array_equal(OPERATORS["pack_qkv"].compute(whole, {"head_size": 2})[0], qkv)


def test_adam_as_published() -> None:
    """A step of [Kingma 2015, algorithm 1] by hand. Master weights keep what the narrow weights round away."""
    values = {"beta1": 0.5, "beta2": 0.75, "epsilon": 0.0, "masters": 1, "rate": 0.1}
    weight, gradient = np.array([1.0], np.float16), np.array([2.0], np.float16)
    master, mean, square = np.array([1.0001], np.float32), np.array([4.0], np.float32), np.array([8.0], np.float32)
    new = OPERATORS["adam"].compute([weight, master, mean, square, gradient, np.array(2)], values)
    assert [float(each[0]) for each in new[2:]] == [3.0, 7.0]
    assert new[1][0] == pytest.approx(1.0001 - 0.1 * (3 / 0.75) / (7 / 0.4375) ** 0.5)
    assert new[0].dtype == np.float16
    assert new[0][0] == np.float16(new[1][0])


@pytest.mark.parametrize(
    ("kind", "arrays", "values", "why"),
    [
        (
            "embedding",
            [np.ones((4, 2)), np.array([3, 4])],
            {},
            "embedding: row 4 is not in the table, which has 4 rows",
        ),
        (
            "exchange_choice",
            [np.array([[0, 4]])] * 2,
            {"experts": 4},
            "choice: expert 4 does not exist, because there are 4 experts",
        ),
        (
            "return_rows",
            [np.ones((2, 3)), np.array([[0, 1]])] * 2,
            {"experts": 4},
            "rows of experts: must be as many as the 4 choices, got 2",
        ),
        ("adam", [np.ones(1)] * 4 + [np.array(0)], dict(ADAM), "adam: needs a step of at least 1, got 0"),
    ],
)
def test_numbers_that_make_no_sense_are_named(kind: str, arrays: list[Array], values: Values, why: str) -> None:
    with pytest.raises(InputError) as told:
        OPERATORS[kind].compute(arrays, values)
    assert str(told.value) == why


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
        (lambda p: replace(p, ops=p.ops[::-1]), "operation 0 (send): uses %2 before it is defined"),
        (lambda p: replace(p, ops=p.ops[1:]), "operation 0 (send): uses the undefined value %2"),
        (lambda p: replace(p, ops=(*p.ops, p.ops[0])), "operation 2 (matmul): defines %2 a second time"),
        (lambda p: replace(p, outputs=(9,)), "outputs: include the undefined value %9"),
        (
            lambda p: replace(p, ops=(Op("matmux", (0, 1), (2,)), *p.ops[1:])),
            "operation 0 (matmux): is not known, did you mean matmul or max?",
        ),
        (
            lambda p: replace(p, types=(*p.types[:2], X, p.types[3])),
            "operation 0 (matmul): outputs fp32[4, 6]@1, but its inputs imply fp32[4, 2]@1",
        ),
        (lambda p: replace(p, types=(*p.types, X)), "types: include %4, which no operation defines"),
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
        ("]@1", f"]@1{'0' * 5000}", "p: line 2: has a number with too many digits"),
        ("matmul(%x, %w)", "matmul(%x, %v)", "p: line 4: uses the undefined value %v"),
        ("matmul(%x, %w)", "matmul(%x, %w", "p: line 4: must be '%RESULT: TYPE = OPERATOR(%INPUT, …)'"),
        (
            "{to=2}",
            "{to=two}",
            "p: line 5: an attribute must be a number, a quoted text or a list like (1 2), got 'two'",
        ),
        ("{to=2}", "{to=1}", "p: operation 1 (send): must send to another device than 1, which has the tensor"),
        ("return %3", "", "p: end: the line 'return …' is missing"),
        ("return %3", "return %3\nreturn %3", "p: line 7: follows the line 'return', which must be the last line"),
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
        ({"on": (1,)}, "bytes and on must have equal lengths, got 2 and 1"),
        ({"on": (1, 3)}, "on must list some of its devices"),
        ({"bytes": 3}, "bytes must be a list like"),
        ({"devices": (2, 1, 2)}, "devices must list distinct devices"),
        ({"devices": (2,), "on": (2, 2)}, "needs inputs from its devices"),
    ],
)
def test_what_a_block_says_must_go_together(changed: dict[str, AttributeValue], why: str) -> None:
    types, attributes = EXAMPLES["block"]
    with pytest.raises(InputError, match=why):
        inferred("block", types, tuple(sorted((dict(attributes) | changed).items())))

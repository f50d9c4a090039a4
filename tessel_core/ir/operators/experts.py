"""Mixture of experts: the choice of experts, and the products of each expert with the tokens that chose it.

Tokens are never dropped. Rows are sorted by expert, so any number of tokens may choose the same expert [Gale 2023,
MegaBlocks].
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tessel_core.errors import InputError
from tessel_core.ir.operators.arrays import in_format, namespace, parts_of, wide
from tessel_core.ir.operators.attributes import integer, number
from tessel_core.ir.operators.communication import OVER, check_complete, more_devices
from tessel_core.ir.operators.functions import sigmoid
from tessel_core.ir.operators.operator import Array, Arrays, Operator, Reverse, Types, Values, Work, need
from tessel_core.ir.operators.reductions import log_softmax_of
from tessel_core.ir.operators.rules import count, same_device, together, with_gradient
from tessel_core.ir.operators.work import copying, moved, no_work, read_work
from tessel_core.ir.types import TensorType

_SCORES = ("softmax", "sigmoid")


def _route(types: Types, values: Values) -> tuple[TensorType, ...]:
    need(len(types) in (1, 2), f"needs logits and optionally a bias of the choice, got {len(types)} inputs")
    same_device(types)
    logits, top = types[0], integer(values, "top", 1)
    need(
        len(logits.shape) > 1 and logits.shape[-1] >= top,
        f"needs at least {top} experts along the last axis, got {logits}",
    )
    need(
        all(each == logits.shaped(logits.shape[-1:]) for each in types[1:]), f"needs a bias for each expert of {logits}"
    )
    need(values["score"] in _SCORES, f"score must be one of {', '.join(_SCORES)}, got {values['score']!r}")
    need(values["normed"] in (0, 1), f"normed must be 0 or 1, got {values['normed']}")
    number(values, "scale")
    chosen = logits.resized(len(logits.shape) - 1, top)
    return chosen, TensorType("int32", chosen.shape, chosen.device)


def _scores(logits: Array, values: Values) -> Array:
    if values["score"] == "sigmoid":
        return sigmoid(namespace(logits), logits)
    return namespace(logits).exp(log_softmax_of(logits, (-1,)))


def _route_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    xp, scores = namespace(arrays[0]), _scores(wide(arrays[0]), values)
    ranked = scores + arrays[1] if len(arrays) > 1 else scores
    choice = xp.argsort(-ranked, axis=-1, stable=True)[..., : integer(values, "top")]
    share = xp.take_along_axis(scores, choice, axis=-1)
    if values["normed"]:
        share = share / share.sum(axis=-1, keepdims=True)
    return [in_format(number(values, "scale") * share, arrays[0]), xp.astype(choice, xp.int32)]


def _route_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    logits, choice, by_share = types
    wanted = _route((logits,), values)
    need(
        (by_share, choice) == wanted,
        f"needs the choice {wanted[1]} and the gradient {wanted[0]}, got {choice} and {by_share}",
    )
    return (logits,)


def _route_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    logits, choice, up = wide(arrays[0]), arrays[1], number(values, "scale") * wide(arrays[2])
    xp, scores = namespace(logits), _scores(logits, values)
    hit = choice[..., None] == xp.arange(logits.shape[-1], device=logits.device)  # [.., top, experts]
    if values["normed"]:
        share = (hit * scores[..., None, :]).sum(axis=-1)
        total = share.sum(axis=-1, keepdims=True)
        up = (up - (up * share).sum(axis=-1, keepdims=True) / total) / total
    by_score = (hit * up[..., None]).sum(axis=-2)
    if values["score"] == "sigmoid":
        found = by_score * scores * (1 - scores)
    else:
        found = scores * (by_score - (by_score * scores).sum(axis=-1, keepdims=True))
    return [in_format(found, arrays[0])]


def sorted_places(choice: Array) -> Array:
    """Return the order of the chosen pairs (token, rank of the choice): indices sorted by expert, then by token."""
    return namespace(choice).argsort(choice.reshape(-1), stable=True)


def _pairs(choice: TensorType) -> int:
    need(choice.dtype.startswith("int"), f"needs the numbers of the experts as integers, got {choice}")
    return choice.elements


def _dispatch(types: Types, values: Values) -> tuple[TensorType, ...]:
    x, choice = together(types, 2)
    need(x.shape[:-1] == choice.shape[:-1], f"needs rows [.., n] and their experts [.., top], got {x} and {choice}")
    if "imbalance" in values:
        need(number(values, "imbalance") >= 1, f"imbalance must be at least 1, got {values['imbalance']}")
    return (x.shaped((_pairs(choice), x.shape[-1])),)


def _dispatch_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    x, choice = arrays
    return [x.reshape(-1, x.shape[-1])[sorted_places(choice) // choice.shape[-1]]]


def _dispatch_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 2)
    choice, dz = types
    need(dz.shape[:1] == (_pairs(choice),) and len(dz.shape) == 2, f"needs one row per choice in {choice}, got {dz}")
    return (dz.shaped((*choice.shape[:-1], dz.shape[1])),)


def _in_order(rows: Array, choice: Array) -> Array:
    """Return rows that are sorted by expert in the order of the tokens: [.., top, n]."""
    found = namespace(rows).empty_like(rows)
    found[sorted_places(choice)] = rows
    return found.reshape(*choice.shape, rows.shape[-1])


def _dispatch_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    choice, dz = arrays
    return [in_format(_in_order(wide(dz), choice).sum(axis=-2), dz)]


def _combine(types: Types, values: Values) -> tuple[TensorType, ...]:
    rows, choice, share = together(types, 3)
    (made,) = _dispatch_grad((choice, rows), values)
    need(
        share.shape == choice.shape and share.dtype == rows.dtype,
        f"needs one share per choice in {choice}, got {share}",
    )
    return (made,)


def _combine_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    rows, choice, share = arrays
    return [in_format((_in_order(wide(rows), choice) * wide(share)[..., None]).sum(axis=-2), rows)]


def _combine_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    rows, choice, share, dz = arrays
    spread = (wide(dz)[..., None, :] * wide(share)[..., None]).reshape(rows.shape)
    by_share = (_in_order(wide(rows), choice) * wide(dz)[..., None, :]).sum(axis=-1)
    return [in_format(spread[sorted_places(choice)], rows), in_format(by_share, share)]


def _grouped(types: Types, values: Values) -> tuple[TensorType, ...]:
    rows, choice, w = together(types, 3)
    fits = len(rows.shape) == 2 and len(w.shape) == 3 and rows.shape == (_pairs(choice), w.shape[1])
    need(
        fits and rows.dtype == w.dtype, f"needs rows [n, k], their experts and weights [experts, k, m], got {rows}, {w}"
    )
    return (rows.resized(1, w.shape[2]),)


def _by_expert(rows: Array, choice: Array, experts: int) -> list[Array]:
    """Return the rows that chose each expert, one array per expert."""
    return parts_of(rows, namespace(choice).bincount(choice.reshape(-1), minlength=experts).tolist(), 0)


def _grouped_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    rows, choice, w = arrays
    return [namespace(w).concat([x @ each for x, each in zip(_by_expert(rows, choice, len(w)), w, strict=True)])]


def _grouped_work(types: Types, outputs: Types, values: Values) -> Work:
    rows, _, w = types
    return Work(2.0 * rows.elements * w.shape[2], moved((rows, w), outputs))


def _grouped_input_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 3)
    w, choice, dz = types
    fits = len(w.shape) == 3 and dz.shape == (_pairs(choice), w.shape[2]) and dz.dtype == w.dtype
    need(fits, f"needs weights [experts, k, m], experts and a gradient [n, m], got {w} and {dz}")
    return (dz.resized(1, w.shape[1]),)


def _grouped_input_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    w, choice, dz = arrays
    return [namespace(w).concat([z @ each.T for z, each in zip(_by_expert(dz, choice, len(w)), w, strict=True)])]


def _grouped_weight_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    count(types, 4)
    (made,) = _grouped(types[:3], values)
    need(types[3] == made, f"needs the gradient of the product, {made}, got {types[3]}")
    return (types[2],)


def _grouped_weight_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    rows, choice, w, dz = arrays
    pairs = zip(*(_by_expert(each, choice, len(w)) for each in (rows, dz)), strict=True)
    return [namespace(w).stack([x.T @ z for x, z in pairs])]


def _grouped_input_grad_work(types: Types, outputs: Types, values: Values) -> Work:
    return Work(2.0 * outputs[0].elements * types[2].shape[1], moved((types[0], types[2]), outputs))


def _grouped_weight_grad_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work of the weights' gradient.

    It reads the rows and the gradient. The weight is not read, because it only gives the shape of the result.
    """
    return Work(2.0 * types[0].elements * types[3].shape[1], moved((types[0], types[3]), outputs))


def _grouped_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    by_weight = _grouped_weight_grad(types, values)
    return types[0], *by_weight


def _grouped_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return [
        *_grouped_input_grad_compute([arrays[i] for i in (2, 1, 3)], values),
        *_grouped_weight_grad_compute(arrays, values),
    ]


def _grouped_grad_work(types: Types, outputs: Types, values: Values) -> Work:
    """Return the work of both gradients: two products as large as the forward product. Each reads the gradient once."""
    rows, _, w, dz = types
    return Work(4.0 * rows.elements * w.shape[2], moved((rows, w, dz, dz), outputs))


def _grouped_gradients(back: Reverse) -> list[int | None]:
    _, choice, w = back.inputs
    if back.wanted[0] and back.wanted[2] and not (back.split and back.weights[2]):
        by_rows, by_weight = back.add("grouped_matmul_grad", (*back.inputs, back.gradient))
        return [by_rows, None, by_weight]
    input_grad = back.one("grouped_matmul_input_grad", w, choice, back.gradient) if back.wanted[0] else None
    weight_grad = back.one_for(2, "grouped_matmul_weight_grad", *back.inputs, back.gradient) if back.wanted[2] else None
    return [input_grad, None, weight_grad]


def _route_gradients(back: Reverse) -> list[int | None]:
    by_share = back.gradients[0]
    assert by_share is not None, "the numbers of the chosen experts have no gradient"
    found = back.one("route_grad", back.inputs[0], back.outputs[1], by_share, **back.values)
    return [found, *[None] * (len(back.inputs) - 1)]


def _combine_gradients(back: Reverse) -> list[int | None]:
    by_rows, by_share = back.add("combine_grad", (*back.inputs, back.gradient))
    return [by_rows, None, by_share]


def _busiest(rows: int, values: Values) -> int:
    """Return the number of rows that arrive at the busiest device, if each device sends `rows`."""
    imbalance = number({"imbalance": 1.0, **values}, "imbalance")
    need(imbalance >= 1, f"imbalance must be at least 1, got {imbalance}")
    return round(rows * imbalance)


def _apart(types: Types, count_each: int) -> tuple[int, list[Types]]:
    """Return the number of devices, and the types of each device's tensors.

    All devices must have the same types.
    """
    found = [types[i : i + count_each] for i in range(0, len(types), count_each)]
    need(
        bool(found) and len(types) % count_each == 0,
        f"needs {count_each} tensors per device, got {len(types)} in total",
    )
    alike = {tuple(each.on(0) for each in tensors) for tensors in found}
    single = all(len({each.device for each in tensors}) == 1 for tensors in found)
    need(len(alike) == 1 and single, f"needs tensors of equal types from each device, got {', '.join(map(str, types))}")
    return len(found), found


def _check_experts(devices: int, values: Values) -> None:
    experts = integer(values, "experts", 1)
    every = devices * more_devices(values)
    need(experts % every == 0, f"{experts} experts do not divide among {every} devices")


def _exchange_choice(types: Types, values: Values) -> tuple[TensorType, ...]:
    devices, found = _apart(types, 1)
    _check_experts(devices, values)
    return tuple(choice.shaped((_busiest(_pairs(choice), values), 1)) for (choice,) in found)


def _exchange_rows(types: Types, values: Values) -> tuple[TensorType, ...]:
    devices, found = _apart(types, 2)
    _check_experts(devices, values)
    need(
        all(rows.shape[:1] == (_pairs(choice),) for rows, choice in found),
        f"needs one row per choice, got {', '.join(map(str, types))}",
    )
    return tuple(rows.resized(0, _busiest(rows.shape[0], values)) for rows, _ in found)


def _return_rows(types: Types, values: Values) -> tuple[TensorType, ...]:
    devices, found = _apart(types, 2)
    _check_experts(devices, values)
    fits = all(rows.shape[:1] == (_busiest(_pairs(choice), values),) for rows, choice in found)
    need(fits, f"needs the exchanged rows of each choice, got {', '.join(map(str, types))}")
    return tuple(rows.resized(0, _pairs(choice)) for rows, choice in found)


def rows_per_device(choice: Array, devices: int, experts: int) -> Array:
    """Return the number of chosen pairs (token, expert) per device of the expert, [devices].

    Raises InputError for an expert that does not exist.
    """
    found = namespace(choice).bincount(choice.reshape(-1) * devices // experts, minlength=devices)
    if len(found) > devices:
        raise InputError("choice", f"expert {int(choice.max())} does not exist, because there are {experts} experts")
    return found


def rows_apart(rows: Array, sizes: Sequence[int]) -> list[Array]:
    """Split rows that are sorted by expert into one array per device of the expert.

    `sizes` are the numbers of rows per device. Raises InputError if they do not add up to the number of rows.
    """
    if len(rows) != sum(sizes):
        raise InputError("rows of experts", f"must be as many as the {sum(sizes)} choices, got {len(rows)}")
    return parts_of(rows, sizes, 0)


def _rows_between(choices: Arrays, values: Values) -> Array:
    """Return a matrix [i, j]: the number of rows that device i sends to device j, which has their experts."""
    check_complete(values)
    return np.stack([rows_per_device(each, len(choices), integer(values, "experts", 1)) for each in choices])


def _exchanged(rows: Arrays, counts: Array) -> list[Array]:
    """Return the rows that each device has received. Device i sends counts[i, j] of its rows to device j."""
    parts = [rows_apart(each, count) for each, count in zip(rows, counts.tolist(), strict=True)]
    return [np.concatenate(received) for received in zip(*parts, strict=True)]


def _exchange_choice_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    counts, each = _rows_between(arrays, values), integer(values, "experts") // len(arrays)
    found = _exchanged([np.sort(choice, axis=None) for choice in arrays], counts)
    return [choice[:, None] - device * each for device, choice in enumerate(found)]


def _exchange_rows_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return _exchanged(arrays[::2], _rows_between(arrays[1::2], values))


def _return_rows_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    return _exchanged(arrays[::2], _rows_between(arrays[1::2], values).T)


_OF_ROUTE = ("normed", "scale", "score", "top")

_COMBINE = Operator("combine", _combine, _combine_compute, copying, gradient=_combine_gradients)

EXPERTS = (
    Operator("route", _route, _route_compute, read_work(5.0), _OF_ROUTE, gradient=_route_gradients),
    Operator("route_grad", _route_grad, _route_grad_compute, read_work(8.0), _OF_ROUTE),
    Operator(
        "dispatch",
        _dispatch,
        _dispatch_compute,
        copying,
        optional=("imbalance",),
        gradient=lambda back: [back.one("dispatch_grad", back.inputs[1], back.gradient), None],
    ),
    Operator("dispatch_grad", _dispatch_grad, _dispatch_grad_compute, copying),
    *with_gradient(_COMBINE, range(3), _combine_grad_compute, copying, made=(0, 2)),
    Operator("grouped_matmul", _grouped, _grouped_compute, _grouped_work, gradient=_grouped_gradients),
    Operator("grouped_matmul_grad", _grouped_grad, _grouped_grad_compute, _grouped_grad_work),
    Operator("grouped_matmul_input_grad", _grouped_input_grad, _grouped_input_grad_compute, _grouped_input_grad_work),
    Operator(
        "grouped_matmul_weight_grad", _grouped_weight_grad, _grouped_weight_grad_compute, _grouped_weight_grad_work
    ),
    *(
        Operator(kind, infer, compute, no_work, ("experts",), "alltoall", optional=("imbalance", *OVER))
        for kind, infer, compute in (
            ("exchange_choice", _exchange_choice, _exchange_choice_compute),
            ("exchange_rows", _exchange_rows, _exchange_rows_compute),
            ("return_rows", _return_rows, _return_rows_compute),
        )
    ),
)
"""The operators of the forward pass:

- `route` has logits [.., experts] as input. For each token, it returns the numbers and the weights [.., top] of the
  experts with the highest scores. A bias may be added for the choice alone [DeepSeek-AI 2024, arXiv 2412.19437, section
  2.1.2]. With `normed`, a token's weights are divided by their sum. All weights are multiplied by `scale`.
- `dispatch` copies each row once for each of its experts, sorted by expert. Its `imbalance` is the number of tokens of
  the busiest device divided by the average, 1 by default. It does not change the result.
- `combine` adds the copies of a row, multiplied by their weights.
- `grouped_matmul` multiplies the rows of each expert by the expert's weights [experts, k, m].

Each device may have an equal part of the `experts`:

- `exchange_choice` and `exchange_rows` move rows that are sorted by expert to the device of their expert. They arrive
  in the order of the sending devices, with experts numbered from 0 on each device.
- `return_rows` moves the rows back.

The number of rows per device depends on the choices. Types give the number of the busiest device, which is `imbalance`
times the average.
"""

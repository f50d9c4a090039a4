"""Tables of the cost model's errors, for the report on its fit, its benchmark and its tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain

from tessel_core.costs.fit import CostFit
from tools.cost_fitting import FREE, fit_all, fit_kernel, works_of
from tools.cost_rows import (
    PASSES,
    RATES,
    Errors,
    KernelRow,
    hidden_sizes,
    is_long,
    kernel_errors,
    kernel_rows,
    layer_errors,
    predicted,
)
from tools.gpt_layer import GptLayer, layer_cost
from tools.h200_rows import Curve, Row, rows
from tools.kernel_work import busy, launching

Predictor = Callable[[str, tuple[int, ...]], float]
"""Function that returns the seconds of a measured pass, given the pass's name and the layer's shape."""
OVERLAPS = (1.0, 2.0, 3.0, 4.0, 8.0)


@dataclass(frozen=True, slots=True)
class Figures:
    """A table. Each line has a name and some errors."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[tuple[str, tuple[Errors, ...]], ...]


def kernels_table(fit: CostFit) -> Figures:
    """Return a table of errors on kernels that were measured alone, with the shipped parameters."""
    lines = ((name, (kernel_errors(fit, of_class),)) for name, of_class in kernel_rows().items())
    return Figures("Kernels measured alone", ("fitted",), tuple(lines))


def unseen_kernels_table(fit: CostFit) -> Figures:
    """Return a table of errors on kernels that were left out of the fit.

    Matrix products are left out by the shape of their weights, and other kernels one by one.
    """
    lines = ((name, (_unseen(fit, name, of_class),)) for name, of_class in kernel_rows().items())
    return Figures("Kernels left out", ("left out",), tuple(lines))


def layers_table(predict: Predictor, column: str) -> Figures:
    """Return a table of errors on passes of layers. Long and short passes have separate lines."""
    lines = [(name, _by_length(predict, lambda each, row, name=name: each == name)) for name in PASSES]  # type: ignore[misc]
    return Figures("Passes of layers", _lengths(column), (*lines, ("together", _by_length(predict, _any))))


def hidden_table(fit: CostFit, unseen: Predictor) -> Figures:
    """Return a table of errors on layers by hidden size.

    One column uses the shipped parameters. The other uses parameters that were fitted on all other hidden sizes.
    """
    known = predicted(fit)
    lines = []
    for size in hidden_sizes():

        def of_size(_: str, row: Row, size: int = size) -> bool:
            return row.shape[2] == size

        lines.append((str(size), (layer_errors(known, of_size), layer_errors(unseen, of_size))))
    return Figures("Layers by hidden size", ("fitted", "left out"), tuple(lines))


def peers_table(fit: CostFit, unseen: Predictor) -> Figures:
    """Return a table that compares the errors of the cost model and of simpler models."""
    lines = (
        ("the model", _by_length(predicted(fit), _any)),
        ("the model, hidden size left out", _by_length(unseen, _any)),
        ("sum of its operators, each as in a graph", _by_length(_operator_by_operator(fit), _any)),
        ("curve through measured layers, hidden size left out", _by_length(_interpolated(), _any)),
        ("roofline of the data sheet", _by_length(_roofline(fit), _any)),
    )
    return Figures("Simpler models", _lengths("layers"), lines)


def overlaps_table() -> Figures:
    """Return a table of errors for several values of p, where the p-norm combines launch time and work time.

    p = 1 is their sum. A large p is the longer of the two.
    """
    lines = ((f"p = {p:g}", _by_length(predicted(fit_all(overlap=p)), _any)) for p in OVERLAPS)
    return Figures("Norms that join launch and work", _lengths("layers"), tuple(lines))


def activation_errors() -> Errors:
    """Return the errors of the predicted bytes that layers keep for the backward pass."""
    measured = rows("layer_fwd").values()
    return Errors(tuple(GptLayer(*row.shape).activation_bytes / row.activation_bytes - 1 for row in measured))


@cache
def unseen_hidden() -> Predictor:
    """Return a predictor of layers that was fitted without their hidden size and without products of such weights."""
    fits = {size: predicted(fit_all((size,))) for size in hidden_sizes()}
    return lambda name, shape: fits[shape[2]](name, shape)


def _unseen(fit: CostFit, name: str, of_class: list[KernelRow]) -> Errors:
    def group(row: KernelRow) -> tuple[int, ...]:
        return row.shape[1:] if name == "matmul" else (*row.shape, of_class.index(row))

    def without(left_out: tuple[int, ...]) -> CostFit:
        kept = [row for row in of_class if group(row) != left_out]
        memory = fit.kernel("elementwise").memory if name in FREE else 1.0
        return replace(fit, kernels=(fit_kernel(name, tuple(kept), fit.wait_alone, memory),))

    groups = dict.fromkeys(map(group, of_class))
    errors = (kernel_errors(without(each), [row for row in of_class if group(row) == each]).each for each in groups)
    return Errors(tuple(chain.from_iterable(errors)))


def _operator_by_operator(fit: CostFit) -> Predictor:
    def seconds(name: str, shape: tuple[int, ...]) -> float:
        longer = {"layer_infer": fit.launches.inference, "layer_fwd": fit.launches.forward}
        works = works_of(name, GptLayer(*shape))
        of_pass = longer.get(name, fit.launches.backward)
        return sum(fit.joined(of_pass * launching(fit, [work]), busy(fit, [work], RATES)) for work in works)

    return seconds


def _interpolated() -> Predictor:
    """Interpolate over FLOPs between measured layers of other hidden sizes."""
    curves = {
        (name, size): Curve.through((row.flops, row.seconds) for row in rows(name).values() if row.shape[2] != size)
        for name in PASSES
        for size in hidden_sizes()
    }
    return lambda name, shape: curves[name, shape[2]](rows(name)[shape].flops)


def _roofline(fit: CostFit) -> Predictor:
    """Predict every kernel at the peak rates: launches take no time, and all efficiencies are 1."""
    perfect = (replace(each, launch=0.0, memory=1.0, per_output=0.0, even_head=0.0) for each in fit.kernels)
    kernels = tuple(replace(each, compute=None if each.compute is None else 1.0) for each in perfect)
    ideal = replace(fit, kernels=kernels)
    return lambda name, shape: PASSES[name](layer_cost(*shape, fit=ideal))


def _by_length(predict: Predictor, chosen: Callable[[str, Row], bool]) -> tuple[Errors, Errors]:
    both: Iterator[Errors] = (
        layer_errors(predict, lambda name, row, long=long: chosen(name, row) and is_long(row) == long)  # type: ignore[misc]
        for long in (True, False)
    )
    return next(both), next(both)


def _lengths(column: str) -> tuple[str, str]:
    return f"{column}, ≥ 500 µs", f"{column}, shorter"


def _any(_: str, __: Row) -> bool:
    return True

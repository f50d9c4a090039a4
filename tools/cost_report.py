"""Write docs/cost_model.md: the form of the cost model, its errors on the measured rows, and its limits."""

from __future__ import annotations

import numpy as np

from tessel_core.costs.fit import CostFit, KernelFit
from tools.cost_figures import (
    Figures,
    activation_errors,
    hidden_table,
    kernels_table,
    layers_table,
    overlaps_table,
    peers_table,
    unseen_hidden,
    unseen_kernels_table,
)
from tools.cost_rows import predicted
from tools.measured_rows import KINDS, unseen

_INTRODUCTION = """\
# The cost model and how well it fits

Written by `python tools/fit_costs.py`; do not edit. The parameters are in `tessel_core/costs/data/h200_fit.json`,
and the measured rows beside them. The rows are from one NVIDIA H200 with PyTorch 2.11, CUDA 13, bf16 and eager mode.
Each is a median of 9 to 15 runs.

## What it says

An operator belongs to a class of kernels by its kind (`costs/kernels.py`). A kernel is *busy* for

    max(operations / (peak · compute), bytes / (bandwidth · memory))
    operations = FLOPs · (1 + even_head / head_size) + per_output · output elements

and takes (launch^p + busy^p)^(1/p) with p = 3. Launches run ahead of the device, so the longer of the two counts, and
near a tie a little more.

- `per_output` makes thin products slow, because they reuse little.
- `even_head` is attention's softmax, which costs as much as the products at that head size.
- Classes without `compute` do arithmetic on vector units, at the fp32 peak.
- In `grouped_matmul`, the products of experts, arithmetic and memory take turns. Busy is their sum, so experts with few
  rows each are slow.
- Kernels that were measured alone also wait for a part of their launch (`wait_alone`). In a stream they do not.
- Autograd makes launches longer, by a factor for each pass.
- A GPT layer (`tools/gpt_layer.py`) joins the sum of its launches and the sum of its work in the same way. Its whole
  backward also launches one accumulation per parameter tensor.

No estimate is below the data sheet's roofline. More FLOPs, bytes or outputs never take less time. Every device takes
its own peaks at the same shares. For an H200 that is the fit, and for others it is **an estimate**.
"""

_UNKNOWN = """\
## What is not known

- Errors are in per cent of the measured time: the median, and the 90th percentile ("90th").
- "Left out" rows are predicted by parameters that did not see them. For a product, all products with weights of that
  shape are left out. Other kernels are left out one by one. For a layer, all layers of its hidden size are left out,
  and all products with such weights.
- The form of the model and p were chosen with all rows in view. Only the parameters are fitted without those left out.
- Rows bound by launches scatter: some layers take 1.6 times as long as others of more work. No model of work explains
  that. Only 3 rows of parameter gradients are that short, and they are estimated a fifth too long.
- `activation_backward` and `normalisation_backward` have no rows of their own. They are fitted on whole layers, and
  take up all work per element of the backward that no other class explains. So the first is probably slower than its
  kernel.
- The backward of the loss has no rows either. It is taken to move 14 bytes for each logit at the speed of other
  elementwise kernels: an fp32 gradient is made from fp32 probabilities, and returned to bf16.
- Softmax rows of 12,288 run twice as fast as rows of 4,096 or 8,192, with another kernel. The model knows bytes alone.
- Products of experts were not measured on an H200. Their share of the peak is that of plain products times 1.075, as on
  a B200. On the A100 PCIe card the ratio is 1.19.
- Convolutions were not measured: they run as the matrix products that they are. Unknown kinds run as matrix products
  or at the speed of memory, whichever takes longer. Collectives move their bytes at NVLink's share of the bandwidth.
- Wave and tile quantisation on 132 multiprocessors was tried for products. It lowered their loss by 2 % at most. A rate
  that falls with FLOPs (power) was tried too. Medians left out went from 4.8 and 4.6 to 4.6 and 4.8 at best. Neither is
  in. Forwards of 1 to 6 ms run up to 10 % faster than predicted.
- Other number formats, other devices, compiled graphs and CUDA graphs were not measured. Launches are those of eager
  mode on the host of the H200, on every device.
- Products in FP8 are taken to reach the same share of their peak as in bf16, and their outputs to cost as long as
  there. Before them, elementwise kernels read each operand for its largest magnitude, read it again, and write it as
  one byte.
- Fused kernels of compiled programs are taken to move bytes as fast as elementwise ones, and to launch as in inference.
  Kernels for products and attention stay as they are, and so do their launches.
- Activation bytes are those of a layer alone on its device, as measured: PyTorch's allocator is simulated. Among other
  layers the allocator cuts blocks differently, by up to 1 MiB for each tensor.
"""


def shipped_sections(fit: CostFit) -> list[str]:
    """Return the sections that depend only on the shipped parameters."""
    return [
        _parameters(fit),
        "## Kernels\n\n" + _markdown(kernels_table(fit)),
        "## Layers\n\n" + _markdown(layers_table(predicted(fit), "fitted")),
        _activations(),
    ]


def report_text(fit: CostFit) -> str:
    """Return the whole report. It repeats the fit for every group of rows that is left out, which takes about 30 s."""
    parameters, kernels, layers, activations = shipped_sections(fit)
    unseen = unseen_hidden()
    sections = (
        _INTRODUCTION,
        parameters,
        kernels,
        _markdown(unseen_kernels_table(fit)),
        layers,
        _markdown(layers_table(unseen, "left out")),
        _markdown(hidden_table(fit, unseen)),
        activations,
        "## Beside simpler models\n\n" + _markdown(peers_table(fit, unseen)),
        _markdown(overlaps_table()),
        kinds_section(),
        _UNKNOWN,
    )
    return "\n".join(sections)


def kinds_section() -> str:
    """Return the section on kinds with measured fractions of the peak, with errors on sizes that were left out."""
    head = (
        "## Other kinds\n\n"
        "A B200 and an A100 PCIe card have parameters of their own for matrix products, of experts too, and fused "
        "attention. They\nare fitted on fractions of the peak that others measured "
        "(`tools/measured_operators.csv`, taken from\nthe system files of SimuMax, Apache-2.0, © Moore Threads). "
        "All else is as on an H200. Each row is predicted by a "
        "fit that saw no row of its size.\nThe constant, the dumbest competitor, is the median fraction of the same "
        "rows. Errors are in per cent of the measured time.\n\n"
        "| kind | rows | fitted: median | mean | 90th | constant: median | mean | 90th |\n"
        "|---|---|---|---|---|---|---|---|\n"
    )
    rows = []
    for kind in KINDS:
        fitted, constant, measured = (np.array(each) for each in unseen(kind))
        cells = [kind, str(len(measured))]
        for errors in (np.abs(fitted / measured - 1), np.abs(constant / measured - 1)):
            cells += [f"{100 * each:.1f}" for each in (np.median(errors), errors.mean(), np.quantile(errors, 0.9))]
        rows.append(f"| {' | '.join(cells)} |\n")
    note = "\nThe rows differ by the layout of the factors and by fp32 accumulation, which operators here do not say.\n"
    return head + "".join(rows) + note


def _parameters(fit: CostFit) -> str:
    head = (
        "## Parameters\n\n"
        f"`wait_alone` {fit.wait_alone:g}; launches of inference × {fit.launches.inference:g}, of a forward that keeps "
        f"activations × {fit.launches.forward:g}, of backwards × {fit.launches.backward:g}.\n\n"
        "| class | launch µs | memory | compute | per_output | even_head |\n|---|---|---|---|---|---|\n"
    )
    return head + "".join(f"| {_parameter_cells(each)} |\n" for each in fit.kernels)


def _parameter_cells(kernel: KernelFit) -> str:
    compute = "–" if kernel.compute is None else f"{kernel.compute:.3f}"
    rest = (f"{value:.0f}" if value else "–" for value in (kernel.per_output, kernel.even_head))
    return " | ".join((kernel.name, f"{kernel.launch * 1e6:.1f}", f"{kernel.memory:.3f}", compute, *rest))


def _activations() -> str:
    errors = activation_errors()
    exact = sum(abs(each) < 1e-9 for each in errors.each)
    return (
        f"## Sizes\n\nParameters are exact. Activation bytes are exact for {exact} of {errors.rows} layers; "
        f"the worst error is {max(map(abs, errors.each)):.1%}.\n"
    )


def _markdown(table: Figures) -> str:
    headings = " | ".join(f"{column}: rows | median | 90th" for column in table.columns)
    rule = "|---" * (1 + 3 * len(table.columns)) + "|"
    lines = (f"| {name} | {' | '.join(map(str, errors))} |" for name, errors in table.lines)
    return "\n".join((f"| {table.title} | {headings} |", rule, *lines)) + "\n"

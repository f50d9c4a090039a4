"""Work of the kernels that were measured, and their time by the cost model."""

from __future__ import annotations

from collections.abc import Iterable
from math import fsum

from tessel_core.costs.fit import FIT, CostFit, Rates
from tessel_core.costs.kernels import Work, outputs_of
from tessel_core.formats.fields import document_text


def matmul(m: float, k: float, n: float, width: int = 2) -> Work:
    """Return the work of a product of (m x k) and (k x n). A number has `width` bytes."""
    return Work("matmul", 2 * m * k * n, (m * k + k * n + m * n) * width, m * n)


def attention(batch: float, heads: float, sequence: float, head_size: float, width: int = 2) -> Work:
    """Return the work of fused causal attention.

    The mask halves the work of both products. Scores are not written to memory.
    """
    tensor = batch * heads * sequence * head_size
    return Work("attention", 2 * sequence * tensor, 4 * tensor * width, tensor, head_size)


def attention_backward(batch: float, heads: float, sequence: float, head_size: float, width: int = 2) -> Work:
    """Return the work of the backward pass of fused causal attention.

    It has five products. One of them computes the scores again [Dao 2022, FlashAttention, appendix B].
    """
    tensor = batch * heads * sequence * head_size
    return Work("attention_backward", 5 * sequence * tensor, 8 * tensor * width, 3 * tensor, head_size)


def moving(kernel: str, moved: float) -> Work:
    """Return the work of a memory-bound kernel that reads and writes `moved` bytes of 16-bit numbers in total."""
    return Work(kernel, 0.0, moved, outputs_of(kernel, moved, None, 2))


def alone(fit: CostFit, work: Work, rates: Rates) -> float:
    """Return the seconds of a kernel that runs alone. It waits for a part of its own launch."""
    kernel = fit.kernel(work.kernel)
    return fit.joined(kernel.launch, fit.wait_alone * kernel.launch + kernel.busy(work, rates))


def busy(fit: CostFit, works: Iterable[Work], rates: Rates) -> float:
    """Return the seconds for which a sequence of kernels keeps the device busy."""
    return fsum(fit.kernel(work.kernel).busy(work, rates) for work in works)


def launching(fit: CostFit, works: Iterable[Work]) -> float:
    """Return the seconds that the host needs to launch the kernels, without autograd."""
    return fsum(fit.kernel(work.kernel).launch for work in works)


def fit_text(fit: CostFit) -> str:
    """Return the text of a file of parameters."""
    return document_text(FIT.write(fit))

"""Seconds of kernels, by parameters fitted on the measured rows of an H200 (`tools/fit_costs.py`, docs/cost_model.md).

A kernel is busy for max(operations / (peak x share), bytes / (bandwidth x share)).  Its launch by the host runs ahead
of the device, so a kernel in a stream takes whichever is longer, launch or busy, and in between a little more: the
p-norm of the two.  Efficiency falls with size because of the launch, and with shape because each output element costs
some operations of its own: thin products, which reuse little, run slower.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib.resources import files

from tessel_core.costs.kernels import Work
from tessel_core.errors import InputError
from tessel_core.formats.fields import as_number, document_text, read_with
from tessel_core.formats.record import Codec, Record, codec_of, list_of, or_null
from tessel_core.model import Device

_FILE = "{}_fit.json"
_POWER = {"h100-500w-96gb": 500 / 700}
"""Share of an H200's power limit that a kind has.  We assume that products and attention draw an H200's whole 700 W,
and that their speed is proportional to the power below that; nobody measured it for us."""
_FP8_SHARE = 0.93
"""Share of their peak that products in FP8 reach over the share that those in bf16 reach: the median of 24 shapes that
were measured on one H100 (`tests/benchmarks/h100.csv`)."""
FLASH2_TIMES = {"flash2_attention": 1.84, "flash2_attention_backward": 1.65}
"""How many times as long as cuDNN's kernel FlashAttention 2 takes on GPUs of the Hopper generation, by kind of
operator: medians of ten shapes measured on one H100 with PyTorch 2.11 (`tests/benchmarks/h100.csv`)."""
_HOPPER = ("h100", "h100-500w-96gb", "h200")
MEASURED_KINDS = ("b200", "a100-pcie", "h200")
"""Kinds of devices with parameters of their own; others take the H200's shares of their own peaks."""


@dataclass(frozen=True, slots=True)
class KernelFit:
    """Speed of one class of kernels; shares are of a data sheet's peak and bandwidth, in (0, 1]."""

    name: str
    launch: float
    """Seconds that its launch takes in eager mode."""
    memory: float
    compute: float | None = None
    """None: no matrix units, arithmetic at the vector units' peak."""
    per_output: float = 0.0
    """Operations that an output element costs besides the products."""
    even_head: float = 0.0
    """The head size of attention at which its softmax takes as long as its products."""
    serial: bool = False
    """Whether arithmetic and traffic with memory take turns, as in products of experts of few rows each."""

    def busy(self, work: Work, rates: Rates) -> float:
        """Seconds that the device works."""
        parts = self.computing(work, rates), self.moving(work, rates)
        return sum(parts) if self.serial else max(parts)

    def computing(self, work: Work, rates: Rates) -> float:
        """Seconds of arithmetic."""
        if self.compute is None:
            return work.flops / rates.vector
        operations = work.flops * (1 + self.even_head / work.head_size) + self.per_output * work.outputs
        return operations / (rates.matrix * self.compute)

    def moving(self, work: Work, rates: Rates) -> float:
        """Seconds of traffic between memory and processors."""
        return work.bytes / (rates.bandwidth * self.memory)


@dataclass(frozen=True, slots=True)
class Rates:
    """Peaks of a device in one number format: operations per second of matrix and vector units, bytes per second."""

    matrix: float
    vector: float
    bandwidth: float


@lru_cache(maxsize=64)
def rates_of(device: Device, dtype: str) -> Rates:
    """The device's own peaks; InputError naming the rate that is missing.

    A format without units is computed in fp32, but for FP8, which is asked for to be faster.
    """
    peaks = (device.peak(each) for each in (dtype, "fp32")[: 1 if dtype == "fp8" else 2])
    matrix = next((each for each in peaks if each is not None), None)
    if matrix is None or device.memory_bandwidth is None:
        missing = f"flops.{dtype}" if matrix is None else "memory_bandwidth"
        raise InputError(f"device {device.name}", f"has no {missing}, from which times are derived")
    if dtype == "fp8":
        matrix *= _FP8_SHARE
    return Rates(matrix, min(matrix, device.peak("fp32") or matrix), device.memory_bandwidth)


@dataclass(frozen=True, slots=True)
class Launches:
    """By how much autograd makes launches longer than inference's, in each pass."""

    inference: float
    forward: float
    backward: float


@dataclass(frozen=True)
class CostFit:
    """All fitted parameters."""

    overlap: float
    """The p of the norm that joins launch and work."""
    wait_alone: float
    """Share of its launch that a kernel which runs alone, as the measured ones did, cannot hide behind another."""
    launches: Launches
    kernels: tuple[KernelFit, ...]

    def kernel(self, name: str) -> KernelFit:
        """The class of that name; KeyError where there is none."""
        return self._by_name[name]

    def at_power(self, share: float) -> CostFit:
        """The same with matrix units that get a share of the power."""
        kernels = (
            each if each.compute is None else replace(each, compute=each.compute * share) for each in self.kernels
        )
        return replace(self, kernels=tuple(kernels))

    @cached_property
    def _by_name(self) -> dict[str, KernelFit]:
        return {each.name: each for each in self.kernels}

    def joined(self, launching: float, busy: float) -> float:
        """Seconds of a stretch of kernels, (launching^p + busy^p)^(1/p): between the longer of the two and their sum.

        >>> CostFit(2.0, 1.0, Launches(1, 1, 1), ()).joined(3.0, 4.0)
        5.0
        """
        longer, shorter = max(launching, busy), min(launching, busy)
        return float(longer * (1 + (shorter / longer) ** self.overlap) ** (1 / self.overlap)) if shorter > 0 else longer

    def alone(self, work: Work, rates: Rates) -> float:
        """Seconds of a kernel measured alone: part of its launch is waited for."""
        kernel = self.kernel(work.kernel)
        return self.joined(kernel.launch, self.wait_alone * kernel.launch + kernel.busy(work, rates))

    def busy(self, works: Iterable[Work], rates: Rates) -> float:
        """Seconds that the device works on one after another."""
        return sum(self.kernel(work.kernel).busy(work, rates) for work in works)

    def launching(self, works: Iterable[Work]) -> float:
        """Seconds that the host launches them, without autograd."""
        return sum(self.kernel(work.kernel).launch for work in works)


_KERNEL = Record(
    KernelFit, "name", "launch", "memory", compute=or_null(Codec(as_number)).sparse(), serial=codec_of(bool).sparse()
)
FIT = Record(CostFit, format="tessel-cost-fit", kernels=list_of(_KERNEL))
"""A file of parameters."""


@cache
def kind_fit(kind: str) -> CostFit:
    """The shipped parameters of a kind of device; the H200's where it has none of its own.

    Those of a B200 and of an A100 PCIe card are the H200's but for matrix products, of experts too, and attention.
    """
    name = _FILE.format(kind if kind in MEASURED_KINDS else "h200")
    found = read_with(FIT.from_fields, files("tessel_core.costs").joinpath("data", name).read_bytes(), name)
    return found.at_power(_POWER[kind]) if kind in _POWER else found


def times_as_long(operator: str, device: str) -> float:
    """How many times as long as the fitted kernel one of that kind of operator takes on that kind of device."""
    return FLASH2_TIMES.get(operator, 1.0) if device in _HOPPER else 1.0


def h200_fit() -> CostFit:
    """The parameters of the H200."""
    return kind_fit("h200")


def fit_text(fit: CostFit) -> str:
    """The text of a file of parameters."""
    return document_text(FIT.write(fit))

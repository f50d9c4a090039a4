"""Durations of kernels, from parameters fitted to measurements on an H200 (`tools/fit_costs.py`, docs/cost_model.md).

A kernel keeps the device busy for max(operations / (peak x share), bytes / (bandwidth x share)) seconds. The host
launches kernels ahead of the device. So a kernel takes its launch time or its busy time, whichever is longer, and
slightly more if both are similar. The formula is the p-norm of the two. Small kernels are inefficient because of the
launch. Thin products are inefficient because each output element costs additional operations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from importlib.resources import files

from tessel_core.costs.kernels import Work
from tessel_core.errors import InputError
from tessel_core.formats.fields import as_number, read_with
from tessel_core.formats.record import Codec, Record, codec_of, list_of, or_null
from tessel_core.model import Device

_FILE = "{}_fit.json"
_POWER_SHARE = {"h100-500w-96gb": 500 / 700}
"""Power limit of a kind of device, divided by that of an H200.

We assume that products and attention use all 700 W of an H200, and that they slow down in proportion below that limit.
We have not measured this.
"""
_FP8_SHARE = 0.93
"""Fraction of the FP8 peak that products reach, divided by the fraction of the bf16 peak that they reach.

It is the median over 24 shapes that were measured on one H100 (`tests/benchmarks/h100.csv`).
"""
FLASH2_TIMES = {"flash2_attention": 1.84, "flash2_attention_backward": 1.65}
"""Duration of FlashAttention 2 divided by that of cuDNN's kernel on Hopper GPUs, by kind of operator.

Each is the median over ten shapes that were measured on one H100 with PyTorch 2.11 (`tests/benchmarks/h100.csv`).
"""
_HOPPER = ("h100", "h100-500w-96gb", "h200")
MEASURED_KINDS = ("b200", "a100-pcie", "h200")
"""Kinds of devices with their own fitted parameters. All other kinds use the H200's fractions with their own peaks."""


@dataclass(frozen=True, slots=True)
class KernelFit:
    """Speed of one class of kernels. Speeds are fractions of the data sheet's peak and bandwidth, in (0, 1]."""

    name: str
    launch: float
    """Seconds for one launch in eager mode."""
    memory: float
    compute: float | None = None
    """Fraction of the matrix units' peak. None if arithmetic runs on the vector units at their full peak."""
    per_output: float = 0.0
    """Additional operations per output element."""
    even_head: float = 0.0
    """Head size for which the softmax of attention takes as long as its products."""
    serial: bool = False
    """Whether arithmetic and memory traffic follow each other instead of overlapping.

    Products of experts with few rows each are such kernels.
    """

    def busy(self, work: Work, rates: Rates) -> float:
        """Return the seconds for which the kernel keeps the device busy."""
        return self.joined(self.computing(work, rates), self.moving(work, rates))

    def joined(self, computing: float, moving: float) -> float:
        """Return the seconds of arithmetic and traffic together."""
        return computing + moving if self.serial else max(computing, moving)

    def computing(self, work: Work, rates: Rates) -> float:
        """Return the seconds of arithmetic."""
        if self.compute is None:
            return work.flops / rates.vector
        operations = work.flops * (1 + self.even_head / work.head_size) + self.per_output * work.outputs
        return operations / (rates.matrix * self.compute)

    def moving(self, work: Work, rates: Rates) -> float:
        """Return the seconds of traffic between memory and processors."""
        return work.bytes / (rates.bandwidth * self.memory)


@dataclass(frozen=True, slots=True)
class Rates:
    """Peak rates of a device for a number format: operations/s of matrix and vector units, bytes/s of memory."""

    matrix: float
    vector: float
    bandwidth: float


@lru_cache(maxsize=64)
def rates_of(device: Device, dtype: str) -> Rates:
    """Return the peak rates of the device. Raises InputError with the name of a missing rate.

    A number format without hardware units is computed in fp32. FP8 is refused instead, because it is requested only for
    its speed.
    """
    peaks = (device.peak(each) for each in (dtype, "fp32")[: 1 if dtype == "fp8" else 2])
    matrix = next((each for each in peaks if each is not None), None)
    if matrix is None or device.memory_bandwidth is None:
        missing = f"flops.{dtype}" if matrix is None else "memory_bandwidth"
        raise InputError(f"device {device.name}", f"has no {missing}, from which times could be derived")
    if dtype == "fp8":
        matrix *= _FP8_SHARE
    return Rates(matrix, min(matrix, device.peak("fp32") or matrix), device.memory_bandwidth)


@dataclass(frozen=True, slots=True)
class Launches:
    """Factors on the time of a launch: in inference, and in the forward and backward pass of training.

    Autograd makes launches longer.
    """

    inference: float
    forward: float
    backward: float


@dataclass(frozen=True)
class CostFit:
    """Fitted parameters of the cost model for one kind of device."""

    overlap: float
    """Exponent p of the norm that combines the time of launches and the busy time."""
    wait_alone: float
    """Fraction of a kernel's launch that its work cannot hide if the kernel runs alone, as in the measurements."""
    launches: Launches
    kernels: tuple[KernelFit, ...]

    def kernel(self, name: str) -> KernelFit:
        """Return the class with this name. Raises KeyError if there is none."""
        return self._by_name[name]

    def at_power(self, share: float) -> CostFit:
        """Return the parameters for matrix units that run with the fraction `share` of an H200's power."""
        kernels = (
            each if each.compute is None else replace(each, compute=each.compute * share) for each in self.kernels
        )
        return replace(self, kernels=tuple(kernels))

    @cached_property
    def _by_name(self) -> dict[str, KernelFit]:
        return {each.name: each for each in self.kernels}

    def joined(self, launching: float, busy: float) -> float:
        """Return the seconds of a sequence of kernels, (launching^p + busy^p)^(1/p).

        This is at least the larger of the two arguments and at most their sum.

        >>> CostFit(2.0, 1.0, Launches(1, 1, 1), ()).joined(3.0, 4.0)
        5.0
        """
        longer, shorter = max(launching, busy), min(launching, busy)
        return float(longer * (1 + (shorter / longer) ** self.overlap) ** (1 / self.overlap)) if shorter > 0 else longer


_KERNEL = Record(
    KernelFit, "name", "launch", "memory", compute=or_null(Codec(as_number)).sparse(), serial=codec_of(bool).sparse()
)
FIT = Record(CostFit, format="tessel-cost-fit", kernels=list_of(_KERNEL))
"""Reads and writes files of parameters."""


@cache
def kind_fit(kind: str) -> CostFit:
    """Return the shipped parameters for a kind of device, or those of the H200 if it has none.

    The parameters of a B200 and an A100 PCIe differ from the H200's only for attention and for matrix products,
    including the products of experts.
    """
    name = _FILE.format(kind if kind in MEASURED_KINDS else "h200")
    found = read_with(FIT.from_fields, files("tessel_core.costs").joinpath("data", name).read_bytes(), name)
    return found.at_power(_POWER_SHARE[kind]) if kind in _POWER_SHARE else found


def times_as_long(operator: str, device: str) -> float:
    """Return the duration of an operator on a kind of device, divided by the duration of the kernel that was fitted."""
    return FLASH2_TIMES.get(operator, 1.0) if device in _HOPPER else 1.0

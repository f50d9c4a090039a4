"""How a network is spread: the degrees of parallelism, the micro-batches, and the order of the pipeline."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.ir.distributed import check_degree

DEFAULT_ORDER = "pipedream"


@dataclass(frozen=True, slots=True)
class Strategy:
    """`data` replicas of `pipeline` stages of `tensor` devices; device d·H·P + h·P + p is stage p of replica d.

    Raises
    ------
    InputError
        For a degree below 1.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    micro_batches: int = 1
    schedule: str = DEFAULT_ORDER
    """The scheduler that orders the micro-batches."""
    recompute: bool = False
    """Whether layers are computed again for their backward instead of being kept."""

    zero: bool = False
    """Whether replicas share the optimizer's state, each with a part of it (ZeRO-1)."""

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "micro_batches"):
            check_degree(name.replace("_", "-"), getattr(self, name))

    @property
    def devices(self) -> int:
        """How many it takes."""
        return self.data * self.tensor * self.pipeline

    def __str__(self) -> str:
        return f"{self.data}/{self.tensor}/{self.pipeline}/{self.micro_batches} {self.how}"

    @property
    def summary(self) -> str:
        """As people say it, what is not divided left out: "2 replicas, 4 stages, 8 micro-batches, pipedream"."""
        degrees = (
            (self.data, f"{self.data} replicas"),
            (self.pipeline, f"{self.pipeline} stages"),
            (self.tensor, f"tensors over {self.tensor}"),
            (self.micro_batches, f"{self.micro_batches} micro-batches"),
        )
        words = [told for degree, told in degrees if degree > 1] + ([self.schedule] if self.pipeline > 1 else [])
        words += ["recomputing"] * self.recompute + ["ZeRO"] * self.zero
        return ", ".join(words if self.devices > 1 else ["one device", *words])

    @property
    def how(self) -> str:
        """Everything but the degrees."""
        return f"{self.schedule}{', recomputing' if self.recompute else ''}{', ZeRO' if self.zero else ''}"

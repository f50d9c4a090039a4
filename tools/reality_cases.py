"""Networks and strategies on one and two processes. All are both run and simulated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

from tessel_core.formats.record import Codec, options_from
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.strategies.families import Family, Spec, find_family
from tessel_core.strategies.strategy import Strategy, build_program, check_strategy

Sizes = tuple[tuple[str, int | str], ...]
_BY_NAME = Codec(lambda value, where: tuple(options_from(value, where).items()), dict)


@dataclass(frozen=True)
class Case:
    """A strategy of a network."""

    family_name: str
    sizes: Annotated[Sizes, _BY_NAME]
    strategy: Strategy

    @property
    def network(self) -> str:
        """Short description of the network."""
        return f"{self.family_name} {self.family.describe(self.spec)}"

    @property
    def family(self) -> Family:
        return find_family(self.family_name)

    @cached_property
    def spec(self) -> Spec:
        return self.family.spec(**dict(self.sizes))

    @cached_property
    def spread(self) -> Distributed:
        """Program on the strategy's devices. Raises InputError for an impossible strategy.

        Gradients are reduced one by one, as in the measured runs.
        """
        check_strategy(self.family, self.spec, self.strategy)
        return build_program(self.family, self.spec, replace(self.strategy, bucket_bytes=0))

    @cached_property
    def whole(self) -> Distributed:
        """Program on one device."""
        return build_program(self.family, self.spec, Strategy())


def _mlp(layers: int, width: int, batch: int) -> tuple[str, Sizes]:
    return "mlp", (("layers", layers), ("width", width), ("batch", batch), ("dtype", "fp32"))


def _gpt(layers: int, hidden: int, vocabulary: int, sequence: int, batch: int, mode: str) -> tuple[str, Sizes]:
    named = (("layers", layers), ("hidden", hidden), ("heads", hidden // 64), ("vocabulary", vocabulary))
    return "gpt", (*named, ("sequence", sequence), ("batch", batch), ("dtype", "fp32"), ("mode", mode))


NETWORKS = (
    _mlp(8, 512, 512),
    _mlp(6, 1024, 256),
    _mlp(4, 1536, 128),
    _mlp(16, 256, 1024),
    _gpt(2, 256, 2000, 128, 8, "training"),
    _gpt(4, 128, 1000, 128, 8, "training"),
    _gpt(2, 384, 1000, 64, 16, "training"),
    _gpt(4, 256, 500, 256, 4, "training"),
    _gpt(4, 256, 1000, 128, 16, "prefill"),
)

TRAINING = (
    Strategy(),
    Strategy(micro_batches=2),
    Strategy(micro_batches=4),
    Strategy(micro_batches=2, recompute=Recompute.FULL),
    Strategy(data=2),
    Strategy(data=2, micro_batches=2, zero=True),
    Strategy(tensor=2),
    Strategy(tensor=2, micro_batches=4),
    Strategy(pipeline=2, micro_batches=2, schedule="gpipe"),
    Strategy(pipeline=2, micro_batches=4, schedule="1f1b"),
    Strategy(pipeline=2, micro_batches=4, schedule="gpipe", recompute=Recompute.FULL),
)
INFERENCE = (
    Strategy(),
    Strategy(micro_batches=4),
    Strategy(data=2),
    Strategy(tensor=2),
    Strategy(pipeline=2, micro_batches=2),
    Strategy(pipeline=2, micro_batches=4),
)


def all_cases() -> Iterator[Case]:
    """Yield every network with every strategy."""
    for family_name, sizes in NETWORKS:
        trains = dict(sizes).get("mode", "training") == "training"
        for strategy in TRAINING if trains else INFERENCE:
            yield Case(family_name, sizes, strategy)

"""GPTs on H200s: as a pipeline, with the backward split, or with a large vocabulary sharded over all devices."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tessel_core.model import MicroBatchPlan
from tessel_core.networks.parts import Dimensions, Part, causal_layer, embedding, vocabulary_loss
from tessel_core.networks.pipelines import cut_stages, sharded_plan, split_v_plan, v_plan


@dataclass(frozen=True, slots=True)
class Gpt:
    """A decoder; a pipeline holds its input and output embeddings separately, also where they are tied."""

    size: Dimensions
    layers: int
    tensor_parallel: int = 1
    """GPUs that share each layer, and so each stage: one device of the plan."""

    def with_micro_batch(self, sequences: int) -> Gpt:
        """The same network fed with that many sequences at a time."""
        return replace(self, size=replace(self.size, micro_batch=sequences))


PADDED_VOCABULARY = 50_304
"""GPT-3's 50,257 tokens, padded to a multiple of 128 as is usual, so that shards and matrix tiles are whole."""

GPT_6_7B = Gpt(Dimensions(PADDED_VOCABULARY, hidden=4096, heads=32, sequence=2048, micro_batch=1), layers=32)
"""GPT-3 6.7B [Brown 2020, table 2.1]."""

GPT_13B = Gpt(Dimensions(PADDED_VOCABULARY, hidden=5120, heads=40, sequence=2048, micro_batch=1), layers=40)
"""GPT-3 13B [Brown 2020, table 2.1]; 5120 is 40 heads of 128, where the table prints 5140."""

GPT_175B = Gpt(
    Dimensions(PADDED_VOCABULARY, hidden=12_288, heads=96, sequence=2048, micro_batch=1), layers=96, tensor_parallel=8
)
"""GPT-3 175B [Brown 2020, table 2.1], each layer over the eight GPUs of a node."""

GPT_1M = Gpt(Dimensions(vocabulary=1_000_000, hidden=4096, heads=32, sequence=2048, micro_batch=1), layers=32)
"""GPT-3 6.7B's layers under a vocabulary of a million tokens [Lin 2024, section II and table III]."""


def gpt_v_plan(gpt: Gpt, devices: int) -> MicroBatchPlan:
    """Embedding on the first stage, projection and loss on the last, layers cut so that the busiest stage is least."""
    return v_plan("gpt-v", _stages(gpt, devices), gpt.tensor_parallel)


def gpt_split_v_plan(gpt: Gpt, devices: int) -> MicroBatchPlan:
    """The stages of `gpt_v_plan`, each backward split into input and weight gradients."""
    return split_v_plan("gpt-split-v", _stages(gpt, devices), gpt.tensor_parallel)


def gpt_m_plan(gpt: Gpt, devices: int) -> MicroBatchPlan:
    """Layers alone as stages; embedding, projection and loss sharded over all devices."""
    stages = cut_stages([causal_layer(gpt.size)] * gpt.layers, devices)
    return sharded_plan("gpt-m", gpt.size, stages, None)


def _stages(gpt: Gpt, devices: int) -> tuple[Part, ...]:
    layer = causal_layer(gpt.size, gpt.tensor_parallel)
    first, last = embedding(gpt.size, gpt.tensor_parallel), vocabulary_loss(gpt.size, gpt.tensor_parallel)
    return cut_stages([first, *[layer] * gpt.layers, last], devices)

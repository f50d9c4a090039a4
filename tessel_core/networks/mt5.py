"""mT5 on H200s: as a pipeline, or with its large vocabulary sharded over all devices [Lin 2024, section II]."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.model import MicroBatchPlan
from tessel_core.networks.parts import Dimensions, decoder_layer, embedding, encoder_layer, join, vocabulary_loss
from tessel_core.networks.pipelines import cut_stages, sharded_plan, v_plan


@dataclass(frozen=True, slots=True)
class Mt5:
    """An encoder and a decoder that share the input embedding; the output projection is its own [Xue 2021]."""

    size: Dimensions
    encoder_layers: int
    decoder_layers: int


MT5_XXL = Mt5(Dimensions(vocabulary=250_112, hidden=4096, heads=32, sequence=2048, micro_batch=1), 24, 24)
"""mT5-XXL's depth, width and vocabulary [Xue 2021], with the measured layer: 32 heads of 128 and an MLP of 4 x hidden
in place of 64 heads of 64 and a gated MLP of 2.5 x hidden, within a tenth of its FLOPs."""


def mt5_v_plan(mt5: Mt5, devices: int) -> MicroBatchPlan:
    """A copy of the embedding on the first encoder stage and on the first decoder stage, the loss on the last."""
    decoder = decoder_layer(mt5.size)
    parts = [embedding(mt5.size), *[encoder_layer(mt5.size)] * mt5.encoder_layers]
    parts += [join((embedding(mt5.size), decoder)), *[decoder] * (mt5.decoder_layers - 1), vocabulary_loss(mt5.size)]
    return v_plan("mt5-v", cut_stages(parts, devices))


def mt5_nn_plan(mt5: Mt5, devices: int) -> MicroBatchPlan:
    """Encoder layers on the first half of the devices, decoder layers on the others; all that has the size of the
    vocabulary sharded over all devices."""
    half = devices // 2
    encoder = cut_stages([encoder_layer(mt5.size)] * mt5.encoder_layers, half)
    decoder = cut_stages([decoder_layer(mt5.size)] * mt5.decoder_layers, devices - half)
    return sharded_plan("mt5-nn", mt5.size, encoder + decoder, half)

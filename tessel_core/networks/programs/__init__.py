"""Builders of programs for one device, to be distributed by transforms."""

from tessel_core.networks.programs.gpt import gpt_decode, gpt_inference, gpt_training
from tessel_core.networks.programs.gpt_spec import GPT_SPECS, GptSpec, gpt_spec
from tessel_core.networks.programs.mlp import MlpSpec, mlp_training

__all__ = [
    "GPT_SPECS",
    "GptSpec",
    "MlpSpec",
    "gpt_decode",
    "gpt_inference",
    "gpt_spec",
    "gpt_training",
    "mlp_training",
]

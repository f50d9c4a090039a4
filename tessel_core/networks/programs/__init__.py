"""Builders of programs: networks for one device, to be distributed by transforms, and schedules of plans."""

from tessel_core.networks.programs.gpt import gpt_decode, gpt_inference, gpt_training
from tessel_core.networks.programs.gpt_spec import GPT_SPECS, GptSpec, gpt_spec
from tessel_core.networks.programs.mlp import MlpSpec, mlp_training
from tessel_core.networks.programs.plan_program import schedule_program

__all__ = [
    "GPT_SPECS",
    "GptSpec",
    "MlpSpec",
    "gpt_decode",
    "gpt_inference",
    "gpt_spec",
    "gpt_training",
    "mlp_training",
    "schedule_program",
]

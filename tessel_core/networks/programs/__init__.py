"""Builders of programs: networks for one device, to be distributed by transforms, schedules of plans, and files."""

from tessel_core.networks.programs.gpt import GPT_SPECS, GptSpec, gpt_decode, gpt_inference, gpt_spec, gpt_training
from tessel_core.networks.programs.mlp import MlpSpec, mlp_training
from tessel_core.networks.programs.plan_program import schedule_program
from tessel_core.networks.programs.program_file import ProgramFile, is_onnx, open_sizes, read_program_file

__all__ = [
    "GPT_SPECS",
    "GptSpec",
    "MlpSpec",
    "ProgramFile",
    "gpt_decode",
    "gpt_inference",
    "gpt_spec",
    "gpt_training",
    "is_onnx",
    "mlp_training",
    "open_sizes",
    "read_program_file",
    "schedule_program",
]

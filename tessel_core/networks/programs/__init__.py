"""Builders of programs: networks for one device, to be distributed by transforms, and schedules of plans."""

from tessel_core.networks.programs.mlp import MlpSpec, mlp_training
from tessel_core.networks.programs.plan_program import schedule_program

__all__ = ["MlpSpec", "mlp_training", "schedule_program"]

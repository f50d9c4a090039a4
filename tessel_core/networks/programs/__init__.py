"""Builders of programs for one device, to be distributed by transforms."""

from tessel_core.networks.programs.mlp import MlpSpec, mlp_training

__all__ = ["MlpSpec", "mlp_training"]

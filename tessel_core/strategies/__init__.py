"""Strategies: a network spread over a mesh in every way that a grid names, and which of them are best."""

from tessel_core.strategies.evaluation import Configuration, Outcome, evaluate
from tessel_core.strategies.families import FAMILIES, Family, Spec, find_family
from tessel_core.strategies.orders import chain_schedulers
from tessel_core.strategies.simulate import (
    Semantics,
    Simulated,
    build_program,
    equal_devices,
    simulate_program,
    simulate_strategy,
    why_not,
)
from tessel_core.strategies.strategy import DEFAULT_ORDER, Strategy

__all__ = [
    "DEFAULT_ORDER",
    "FAMILIES",
    "Configuration",
    "Family",
    "Outcome",
    "Semantics",
    "Simulated",
    "Spec",
    "Strategy",
    "build_program",
    "chain_schedulers",
    "equal_devices",
    "evaluate",
    "find_family",
    "simulate_program",
    "simulate_strategy",
    "why_not",
]

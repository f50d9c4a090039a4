"""Strategies: a network spread over a mesh in every way that a grid names, and which of them are best."""

from tessel_core.strategies.evaluation import Configuration, Outcome, evaluate
from tessel_core.strategies.families import FAMILIES, Family, Spec, Value, find_family
from tessel_core.strategies.grid import OBJECTIVES, Grid, GridResult, doubling, evaluate_grid, ranges, read_range
from tessel_core.strategies.orders import DEFAULT_ORDER, chain_schedulers
from tessel_core.strategies.pipeline_plan import pipeline_plan
from tessel_core.strategies.strategy import (
    Semantics,
    Simulated,
    Strategy,
    build_program,
    count_operations,
    equal_devices,
    simulate_strategy,
)

__all__ = [
    "DEFAULT_ORDER",
    "FAMILIES",
    "OBJECTIVES",
    "Configuration",
    "Family",
    "Grid",
    "GridResult",
    "Outcome",
    "Semantics",
    "Simulated",
    "Spec",
    "Strategy",
    "Value",
    "build_program",
    "chain_schedulers",
    "count_operations",
    "doubling",
    "equal_devices",
    "evaluate",
    "evaluate_grid",
    "find_family",
    "pipeline_plan",
    "ranges",
    "read_range",
    "simulate_strategy",
]

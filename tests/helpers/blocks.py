"""How near blocks come to the simulation of every operation."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tessel_core.model import DeviceMesh
from tessel_core.strategies.configuration import Configuration
from tessel_core.strategies.evaluation import evaluate
from tessel_core.strategies.families import Family
from tessel_core.strategies.strategy import simulate_places


def near_every_operation(
    family: Family, some: Sequence[Configuration], mesh: DeviceMesh, *, latency: float, memory: float
) -> None:
    """Assert that times and peaks are within these shares, and most times within 1 %."""
    errors = list[float]()
    for each, outcome in zip(some, evaluate(family, some, mesh), strict=True):
        assert (outcome.reason, outcome.by_blocks) == ("", True)
        trace = simulate_places(family, each.spec, each.strategy, mesh)
        assert outcome.latency == pytest.approx(trace.latency, rel=latency), each
        assert max(outcome.peaks) == pytest.approx(max(trace.peak_memory), rel=memory), each
        errors.append(abs(outcome.latency / trace.latency - 1))
    assert sorted(errors)[len(errors) // 2] < 0.01

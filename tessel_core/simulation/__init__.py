"""Simulation: how long a distributed program takes, how much memory its devices need, and why."""

from tessel_core.simulation.attribution import memory_parts, memory_shares
from tessel_core.simulation.simulator import simulate
from tessel_core.simulation.trace import Trace
from tessel_core.simulation.waiting import device_times, why_waiting

__all__ = ["Trace", "device_times", "memory_parts", "memory_shares", "simulate", "why_waiting"]

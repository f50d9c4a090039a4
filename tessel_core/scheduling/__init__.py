"""The schedule searches and the published schedules, behind one table and one front door."""

from tessel_core.scheduling.problem import Scheduler
from tessel_core.scheduling.table import DEFAULT_SCHEDULER, SCHEDULERS, find_scheduler, solve_schedule

__all__ = ["DEFAULT_SCHEDULER", "SCHEDULERS", "Scheduler", "find_scheduler", "solve_schedule"]

"""The schedule searches and the published schedules, behind one table and one front door."""

from tessel_core.scheduling.judged import judge
from tessel_core.scheduling.problem import Scheduler
from tessel_core.scheduling.question import Question
from tessel_core.scheduling.summary import KeyNumber, key_numbers, speed_up, verdict
from tessel_core.scheduling.table import DEFAULT_SCHEDULER, SCHEDULERS, find_scheduler, solve_schedule

__all__ = [
    "DEFAULT_SCHEDULER",
    "SCHEDULERS",
    "KeyNumber",
    "Question",
    "Scheduler",
    "find_scheduler",
    "judge",
    "key_numbers",
    "solve_schedule",
    "speed_up",
    "verdict",
]

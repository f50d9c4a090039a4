"""The schedule searches and the published schedules, behind one table and one front door."""

from tessel_core.scheduling.judged import judge, judge_file
from tessel_core.scheduling.problem import Scheduler
from tessel_core.scheduling.question import Question
from tessel_core.scheduling.summary import KeyNumber, key_numbers, speed_up, verdict
from tessel_core.scheduling.table import DEFAULT_SCHEDULER, SCHEDULERS, find_scheduler, solve_schedule, title_of

__all__ = [
    "DEFAULT_SCHEDULER",
    "SCHEDULERS",
    "KeyNumber",
    "Question",
    "Scheduler",
    "find_scheduler",
    "judge",
    "judge_file",
    "key_numbers",
    "solve_schedule",
    "speed_up",
    "title_of",
    "verdict",
]

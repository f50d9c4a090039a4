"""The schedule searches and the published schedules, behind one table and one front door."""

from tessel_core.scheduling.comparison import Answer, Comparison, Row, compare
from tessel_core.scheduling.evaluate import evaluate, evaluate_file
from tessel_core.scheduling.problem import Scheduler
from tessel_core.scheduling.question import Question
from tessel_core.scheduling.table import (
    DEFAULT_SCHEDULER,
    SCHEDULERS,
    check_micro_batches,
    find_scheduler,
    solve_schedule,
    title_of,
)

__all__ = [
    "DEFAULT_SCHEDULER",
    "SCHEDULERS",
    "Answer",
    "Comparison",
    "Question",
    "Row",
    "Scheduler",
    "check_micro_batches",
    "compare",
    "evaluate",
    "evaluate_file",
    "find_scheduler",
    "solve_schedule",
    "title_of",
]

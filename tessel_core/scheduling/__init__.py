"""Schedule searches and published schedules. `SCHEDULERS` lists them, and `solve_schedule` runs them."""

from tessel_core.scheduling.comparison import Answer, Comparison, Row, compare
from tessel_core.scheduling.reports import evaluate_file
from tessel_core.scheduling.schedulers import (
    BASELINES,
    DEFAULT_SCHEDULER,
    SCHEDULERS,
    Question,
    Scheduler,
    check_micro_batches,
    find_scheduler,
    one_micro_batch,
    solve_schedule,
    title_of,
)

__all__ = [
    "BASELINES",
    "DEFAULT_SCHEDULER",
    "SCHEDULERS",
    "Answer",
    "Comparison",
    "Question",
    "Row",
    "Scheduler",
    "check_micro_batches",
    "compare",
    "evaluate_file",
    "find_scheduler",
    "one_micro_batch",
    "solve_schedule",
    "title_of",
]

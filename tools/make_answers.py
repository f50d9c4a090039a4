"""Regenerate `sample_models/answers/`: python tools/make_answers.py [FOLDER].

The package contains the answer to the question of the Start page, so a first visit shows it without a search. The
search depends on the speed of the machine. So a test compares what it proves, not the bytes of the file.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tessel_core.control import Control
from tessel_core.formats import write_file
from tessel_core.formats.answer_file import answer_text
from tessel_core.samples import load_sample
from tessel_core.scheduling import DEFAULT_SCHEDULER, Question, find_scheduler
from tessel_core.workbench.answers import ANSWER_FOLDER, digest
from tessel_core.workbench.workspace import MICRO_BATCHES

FIRST_SAMPLE = "gpt-1m-vocab-m-4"


def first_question() -> Question:
    """Return the question of the Start page."""
    config = find_scheduler(DEFAULT_SCHEDULER).config()
    return Question(DEFAULT_SCHEDULER, load_sample(FIRST_SAMPLE), MICRO_BATCHES, config)


def write_answers(folder: Path) -> None:
    """Search, and replace the answers in `folder` by the new answer."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.json"):
        old.unlink()
    question = first_question()
    write_file(folder / f"{digest(question)}.json", answer_text(question.solve(Control())))


if __name__ == "__main__":
    write_answers(Path(sys.argv[1]) if len(sys.argv) > 1 else ANSWER_FOLDER)

"""Slides that somebody made of schedules, which are kept with a workspace."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.scheduling.comparison import Made

MOST_SLIDES, MOST_RUNS = 40, 20_000
"""Of a workspace, and of a slide: what a browser shows at once, and a file has room for."""
LONGEST_TITLE, LONGEST_TEXT = 200, 2_000
"""Characters."""


@dataclass(frozen=True, slots=True)
class OwnSlide:
    """A title, a text, and schedules under each other as they were when they were added.

    Raises InputError for what is too long or too large, and for schedules in different units of time.
    """

    title: str
    text: str = ""
    shown: tuple[tuple[str, Made], ...] = ()
    """Titles and schedules."""

    def __post_init__(self) -> None:
        for what, text, most in (("title", self.title, LONGEST_TITLE), ("text", self.text, LONGEST_TEXT)):
            if len(text) > most:
                raise InputError("slide", f"has a {what} of {len(text):,} characters, more than {most:,}")
        runs = sum(made.micro_batches * len(made.plan.blocks) for _, made in self.shown)
        if runs > MOST_RUNS:
            raise InputError("slide", f"has {runs:,} runs, more than {MOST_RUNS:,}")
        if len({made.plan.time_unit for _, made in self.shown}) > 1:
            raise InputError("slide", "has schedules in different units of time, which share no axis")


def with_slide(slides: tuple[OwnSlide, ...], slide: OwnSlide) -> tuple[OwnSlide, ...]:
    """With one more at the end; InputError where there are too many."""
    if len(slides) >= MOST_SLIDES:
        raise InputError("slides", f"are {MOST_SLIDES} already, the most that a workspace has")
    return (*slides, slide)

"""Slides that a user has made of schedules. The workspace stores them."""

from __future__ import annotations

from dataclasses import dataclass

from tessel_core.errors import InputError
from tessel_core.scheduling.comparison import Made

MAX_SLIDES, MAX_RUNS = 40, 20_000
"""Limits of slides per workspace, and of runs per slide. A browser can show this many, and a file can store them."""
LONGEST_TITLE, LONGEST_TEXT = 200, 2_000
"""Limits of a slide's title and text, in characters."""


@dataclass(frozen=True, slots=True)
class OwnSlide:
    """A title, a text, and schedules below each other.

    The schedules are copies from the moment when the slide was made. Raises InputError if the slide is too long or too
    large, or if schedules have different time units.
    """

    title: str
    text: str = ""
    shown: tuple[tuple[str, Made], ...] = ()
    """Title of each schedule on the slide, and the schedule."""

    def __post_init__(self) -> None:
        for what, text, most in (("title", self.title, LONGEST_TITLE), ("text", self.text, LONGEST_TEXT)):
            if len(text) > most:
                raise InputError("slide", f"has a {what} of {len(text):,} characters, more than {most:,}")
        runs = sum(made.micro_batches * len(made.plan.blocks) for _, made in self.shown)
        if runs > MAX_RUNS:
            raise InputError("slide", f"has {runs:,} runs, more than {MAX_RUNS:,}")
        if len({made.plan.time_unit for _, made in self.shown}) > 1:
            raise InputError("slide", "has schedules with different time units, which cannot share an axis")


def with_slide(slides: tuple[OwnSlide, ...], slide: OwnSlide) -> tuple[OwnSlide, ...]:
    """Return the slides with a new slide at the end. Raises InputError if there are already too many."""
    if len(slides) >= MAX_SLIDES:
        raise InputError("slides", f"are already {MAX_SLIDES}, the limit of a workspace")
    return (*slides, slide)

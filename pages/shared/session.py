"""What one person works on: one typed object in the session, and a desk on the server where a reload finds it."""

from __future__ import annotations

import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import streamlit as st

from tessel_core.errors import InputError
from tessel_core.formats import ScheduleFile, read_text
from tessel_core.formats.tables import PlanTables, plan_of, tables_of
from tessel_core.model import MicroBatchPlan, ScheduleReport
from tessel_core.samples import load_sample
from tessel_core.scheduling import DEFAULT_SCHEDULER, Comparison, Question, find_scheduler, judge_file

FIRST_SAMPLE = "gpt-1m-vocab-m-4"
MICRO_BATCHES = 16
_DESK_HOLDS = 200


@dataclass(frozen=True)
class Workspace:
    """A plan under study and what is asked of it; changed only as a whole, so a rerun never sees half a change."""

    token: str
    source: str
    """Where the plan comes from: a sample, a file or a shape, in a few words."""
    sample: str
    """Name of the sample; empty for everything else."""
    plan: MicroBatchPlan
    """The last valid plan; equal to what the tables say while `complaint` is empty."""
    draft: PlanTables
    complaint: str = ""
    scheduler: str = DEFAULT_SCHEDULER
    micro_batches: int = MICRO_BATCHES
    configs: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    """Options by scheduler, where they were changed."""
    asked: Question | None = None
    """The question of the latest search, whose answer `jobs` keeps."""
    opened: ScheduleReport | None = None
    """The schedule that was opened instead of a plan, until something is searched."""
    comparison: Comparison = field(default_factory=Comparison)
    """What stands on the Compare page; it goes along from plan to plan."""

    @property
    def config(self) -> Any:
        return self.configs.get(self.scheduler) or find_scheduler(self.scheduler).config()

    @property
    def question(self) -> Question:
        return Question(self.scheduler, self.plan, self.micro_batches, self.config)

    def edited(self, draft: PlanTables) -> Workspace:
        """With new tables: their plan where they say one, else the plan before and the reason why not."""
        if draft == self.draft:
            return self
        try:
            return replace(self, draft=draft, plan=plan_of(draft), complaint="")
        except InputError as error:
            return replace(self, draft=draft, complaint=str(error))


@dataclass
class Session:
    """All that the app remembers for one browser tab."""

    work: Workspace | None = None
    editor_base: PlanTables | None = None
    """What the table widgets were given; Streamlit keeps their edits as differences to it."""
    notice: str = ""
    """One sentence about something that could not be opened."""
    next_view: str = ""
    """The view that the schedule page shows in its next run, whatever its switch said."""

    def change(self, work: Workspace) -> None:
        """Make `work` the present state, for this tab and for its reload."""
        self.work = work
        with _LOCK:
            _DESK[work.token] = work
            _DESK.move_to_end(work.token)
            while len(_DESK) > _DESK_HOLDS:
                _DESK.popitem(last=False)

    def open_plan(
        self, plan: MicroBatchPlan, source: str, sample: str = "", opened: ScheduleReport | None = None
    ) -> None:
        """Put a plan on the desk, in place of what was there."""
        micro_batches = MICRO_BATCHES if opened is None or opened.solution is None else opened.solution.micro_batches
        self.notice, self.editor_base = "", None
        token, draft = secrets.token_urlsafe(9), tables_of(plan)
        work = Workspace(token, source, sample, plan, draft, micro_batches=micro_batches, opened=opened)
        self.change(work if self.work is None else replace(work, comparison=self.work.comparison))

    def open_sample(self, name: str) -> None:
        self.open_plan(load_sample(name), f"sample {name}", sample=name)

    def open_file(self, data: bytes, name: str) -> bool:
        """Open an uploaded plan or schedule; on bad input only `notice` changes."""
        try:
            found = read_text(data, name)
            if isinstance(found, ScheduleFile):
                self.open_plan(found.schedule.plan, f"file {name}", opened=judge_file(found))
            else:
                self.open_plan(found, f"file {name}")
        except InputError as error:
            self.notice = str(error if error.where.startswith(name) else error.within(name))
            return False
        return True


_LOCK = threading.Lock()
_DESK: OrderedDict[str, Workspace] = OrderedDict()


def session() -> Session:
    """The one object in Streamlit's session state."""
    found: Session = st.session_state.setdefault("tessel", Session())
    return found


def workspace() -> Workspace:
    """What is on the desk; the first sample where nothing is."""
    if session().work is None:
        session().open_sample(FIRST_SAMPLE)
    work = session().work
    assert work is not None
    return work


def restore() -> str:
    """Find again what the address names: the very workspace while the server knows it, else its sample.

    Returns one sentence where the address names something unknown, else nothing.
    """
    address = st.query_params
    if session().work is not None:
        return ""
    known = _DESK.get(address.get("work", ""))
    try:
        if known is not None:
            session().change(known)
        elif "sample" in address:
            _open_from_address(address["sample"], address.get("scheduler"), address.get("n", ""))
    except InputError as error:
        return f"The address could not be followed: {error}."
    return ""


def _open_from_address(sample: str, scheduler: str | None, micro_batches: str) -> None:
    chosen = None if scheduler is None else find_scheduler(scheduler).name
    if micro_batches and not re.fullmatch("[1-9][0-9]{0,4}", micro_batches):
        raise InputError("n", f"must be a whole number from 1 to 99,999, got {micro_batches!r}")
    session().open_sample(sample)
    work = workspace()
    count = int(micro_batches) if micro_batches else work.micro_batches
    session().change(replace(work, scheduler=chosen or work.scheduler, micro_batches=count))


def keep_address() -> None:
    """Write the workspace into the address, for reloads and for sending it to somebody."""
    work = session().work
    if work is None:
        return
    wanted = {"work": work.token, "scheduler": work.scheduler, "n": str(work.micro_batches)}
    if work.sample:
        wanted["sample"] = work.sample
    if st.query_params.to_dict() != wanted:
        st.query_params.from_dict(wanted)

"""What one person works on, as one value, and how it goes into files and comes out of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tessel_core.errors import InputError
from tessel_core.formats import KeptQuestion, WorkspaceFile, schedule_file
from tessel_core.formats.schedule_file import ScheduleFile
from tessel_core.formats.tables import PlanTables, plan_of, tables_of
from tessel_core.model import MicroBatchPlan, ScheduleReport
from tessel_core.options import changed_options, config_from
from tessel_core.placing import Placing
from tessel_core.placing.kept import kept_placing, placing_of
from tessel_core.scheduling import DEFAULT_SCHEDULER, Comparison, Question, find_scheduler, judge_file

MICRO_BATCHES = 16
"""How many are asked for at first."""


@dataclass(frozen=True)
class Workspace:
    """A plan under study and what is asked of it; changed only as a whole, so a rerun never sees half a change."""

    token: str
    """By which the store and the address know it."""
    name: str
    """By which people know it."""
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
    """The question of the latest search, whose answer is found by it."""
    opened: ScheduleReport | None = None
    """The schedule that was opened instead of a plan, until something is searched."""
    comparison: Comparison = field(default_factory=Comparison)
    """What stands on the Compare page; it goes along from plan to plan."""
    placing: Placing = field(default_factory=Placing)
    """The graph, the mesh and the placement that a plan may come from; it goes along as well."""
    strategies: Mapping[str, str | bool] = field(default_factory=lambda: MappingProxyType({}))
    """What is asked about strategies, by field, where it is not as usual; it goes along as well."""

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

    def with_plan(self, plan: MicroBatchPlan, source: str) -> Workspace:
        """With another plan in the place of the present one; what is asked of it stays, as far as it goes."""
        return replace(
            self, source=source, sample="", plan=plan, draft=tables_of(plan), complaint="", asked=None, opened=None
        )

    def carrying(self, other: Workspace) -> Workspace:
        """With what goes along from plan to plan."""
        return replace(self, comparison=other.comparison, placing=other.placing, strategies=other.strategies)

    def asking(self, scheduler: str, micro_batches: int, config: object) -> Workspace:
        """With another question about the same plan."""
        others = {name: each for name, each in self.configs.items() if name != scheduler}
        configs = {**others, scheduler: config} if changed_options(config) else others
        return replace(self, scheduler=scheduler, micro_batches=micro_batches, configs=configs)

    def about(self, objective: str) -> Workspace:
        """Asking for another objective of the same search: in the form, of the last search and of what was opened."""
        work = self.asking(self.scheduler, self.micro_batches, self.question.about(objective).config)
        asked = None if self.asked is None else self.asked.about(objective)
        return replace(work, asked=asked, opened=None if self.opened is None else self.opened.about(objective))

    def differs_in_more_than_answers(self, other: Workspace) -> bool:
        """True where a person changed something that can be undone; having searched is nothing to undo."""
        return replace(self, asked=other.asked, opened=other.opened) != other


def workspace_file(work: Workspace) -> WorkspaceFile:
    """The workspace as it is kept."""
    return WorkspaceFile(
        name=work.name,
        source=work.source,
        sample=work.sample,
        plan=work.plan,
        draft=work.draft,
        scheduler=work.scheduler,
        micro_batches=work.micro_batches,
        options={name: changed_options(config) for name, config in work.configs.items()},
        asked=None if work.asked is None else _kept(work.asked),
        opened=_schedule(work.opened),
        compared=tuple(_kept(question) for question in work.comparison.pairs),
        reference=work.comparison.reference,
        placing=None if work.placing == Placing() else kept_placing(work.placing),
        strategies=dict(work.strategies),
    )


def workspace_of(file: WorkspaceFile, token: str) -> Workspace:
    """The workspace that was kept; its schedule is judged again, since it comes from a file.

    Raises
    ------
    InputError
        For a scheduler, a placer, an option or a field that is not known, for a schedule that breaks a rule, and for a
        placement that does not belong to its graph and devices.
    """
    return Workspace(
        token=token,
        name=file.name,
        source=file.source,
        sample=file.sample,
        plan=file.plan,
        draft=file.draft,
        complaint=_complaint(file.draft),
        scheduler=find_scheduler(file.scheduler).name,
        micro_batches=file.micro_batches,
        configs={name: _config(name, options) for name, options in file.options.items()},
        asked=None if file.asked is None else _question(file.asked),
        opened=None if file.opened is None else judge_file(file.opened),
        comparison=Comparison(tuple(_question(question) for question in file.compared), file.reference),
        placing=Placing() if file.placing is None else placing_of(file.placing),
        strategies=_answers(file.strategies),
    )


def _answers(kept: Mapping[str, object]) -> Mapping[str, str | bool]:
    """What is asked about strategies, which are loaded only where anything is."""
    if not kept:
        return {}
    from tessel_core.strategies.form import check_answers

    return check_answers(kept)


def _complaint(draft: PlanTables) -> str:
    try:
        plan_of(draft)
    except InputError as error:
        return str(error)
    return ""


def _schedule(report: ScheduleReport | None) -> ScheduleFile | None:
    return None if report is None or report.solution is None else schedule_file(report.solution, report)


def _kept(question: Question) -> KeptQuestion:
    options = changed_options(question.config)
    return KeptQuestion(question.scheduler, question.plan, question.micro_batches, options)


def _question(kept: KeptQuestion) -> Question:
    return Question(kept.scheduler, kept.plan, kept.micro_batches, _config(kept.scheduler, kept.options))


def _config(scheduler: str, options: Mapping[str, object]) -> Any:
    try:
        return config_from(find_scheduler(scheduler).config, options)
    except InputError as error:
        raise error if error.where == "scheduler" else error.within(f"options of {scheduler}") from None

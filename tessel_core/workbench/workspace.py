"""The work of one user as one immutable value, with its file format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Annotated, Any

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.formats import WorkspaceFile
from tessel_core.formats.fields import Fields
from tessel_core.formats.record import (
    COUNT,
    Codec,
    Record,
    at_least,
    list_of,
    named,
    one_of,
    options_by,
    options_from,
    options_of_kind,
)
from tessel_core.formats.run_file import run_document, run_file, run_from
from tessel_core.formats.schedule_file import ScheduleFile, schedule_file
from tessel_core.formats.tables import DRAFT, PlanTables, plan_of, tables_of
from tessel_core.model import MeasuredRun, MicroBatchPlan, Schedule, ScheduleReport
from tessel_core.model.receives import Receives, ReceiveWait
from tessel_core.options import changed_options, with_config
from tessel_core.scheduling import DEFAULT_SCHEDULER, Comparison, Question, evaluate_file, find_scheduler
from tessel_core.scheduling.comparison import Made, Pair
from tessel_core.workbench.placing import PLACING, Placing, placing_from
from tessel_core.workbench.slides import OwnSlide, with_slide

MICRO_BATCHES = 16
"""Number of micro-batches in a new workspace."""


def _strategies_from(value: object, where: str) -> Mapping[str, str | bool]:
    """Read the user's entries of the strategies form.

    The package `tessel_core.strategies` is loaded only if there are entries.
    """
    answers = {} if value is None else options_from(value, where)
    if not answers:
        return {}
    from tessel_core.strategies.form import check_answers

    return check_answers(answers)


_STRATEGIES = Codec(_strategies_from, dict)
_STARTS = list_of(list_of(COUNT))
_CONFIGS = options_by(lambda scheduler: find_scheduler(scheduler).config, key="options")


@dataclass(frozen=True, order=True, slots=True)
class Pin:
    """A pinned run: index of a block in the plan, and a micro-batch."""

    block: int
    micro_batch: int


@dataclass(frozen=True, slots=True)
class ByHand:
    """Marks a schedule that the user has changed by hand. It has the pinned runs that a completion must not move."""

    pins: tuple[Pin, ...] = ()
    by_order: bool = False
    """Whether a completion keeps only the order of the pinned runs on each device, not their times."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Problem of ranks that follow an opened file: they wait forever, or receive another tensor than they expect."""

    sentence: str
    runs: tuple[Pin, ...] = ()
    """Runs that wait for each other in a circle. If there is no circle, the runs that the sentence names."""


@dataclass(frozen=True, slots=True)
class Written:
    """Timing of an opened file for one of the two ways in which receives can wait."""

    receives: Annotated[str, one_of(tuple(Receives))]
    starts: Annotated[tuple[tuple[int, ...], ...], _STARTS]
    """Start times of all runs in ticks, with shape (micro-batches, blocks)."""
    waits: Annotated[tuple[ReceiveWait, ...], list_of(Record(ReceiveWait))] = ()


@dataclass(frozen=True, slots=True)
class Played:
    """Progress of the player in a level of the course, or in the puzzle that is made of the open plan."""

    level: str
    placed: Annotated[tuple[tuple[int, ...], ...], _STARTS] = ()
    """Player's moves, as rows whose meaning depends on the level.

    A row has block, micro-batch and start of a run on the board; or the order of a list of actions; or the devices of a
    part.
    """
    chosen: int | None = None
    """Player's choice, whose meaning depends on the level.

    It is the latest value of a slider, the period of a repeated block, or 1 after lists ran or an assignment was
    simulated.
    """
    reached: bool = False
    """Whether the level was solved. It stays True if the player continues."""


OWN = "own"
"""Name of the level that is made of the open plan and its number of micro-batches."""


@dataclass(frozen=True)
class Workspace:
    """Everything that one user works on: the open plan, its questions and their answers, and the state of all pages.

    Immutable.
    """

    token: str
    """Key in the store and in the page's address."""
    name: str
    """Name that the user sees."""
    source: str
    """Origin of the plan in a few words: a sample, a file or a shape."""
    sample: str
    """Name of the sample. Empty for other plans."""
    plan: MicroBatchPlan
    """Last valid plan. It equals the tables in `draft` if `complaint` is empty."""
    draft: PlanTables
    complaint: str = ""
    scheduler: Annotated[str, named(find_scheduler)] = DEFAULT_SCHEDULER
    micro_batches: Annotated[int, at_least(1)] = MICRO_BATCHES
    configs: Annotated[Mapping[str, Any], _CONFIGS] = field(default_factory=lambda: MappingProxyType({}))
    """Options that the user has changed, by scheduler."""
    asked: Question | None = None
    """Question of the latest search, by which its answer is found."""
    opened: ScheduleReport | None = None
    """Schedule that was opened or changed by hand, or the answer to `asked` if the workspace was exported with it."""
    by_hand: ByHand | None = None
    """Pins of `opened`, if it was changed by hand."""
    hang: Hang | None = None
    """Problem of ranks that run `opened` with the sends and receives of its file. None if there is none."""
    written: Annotated[tuple[Written, ...], list_of(Record(Written)).sparse()] = ()
    """Timings of the opened file, one for each way to wait for receives.

    A way in which the file hangs has no timing.
    """
    comparison: Comparison = field(default_factory=Comparison)
    """Pairs of the Compare page. They are kept when another plan opens."""
    placing: Placing = field(default_factory=Placing)
    """Graph, mesh and placement. They are kept when another plan opens."""
    ran: MeasuredRun | None = None
    """Latest measured run of a schedule of the plan."""
    strategies: Annotated[Mapping[str, str | bool], _STRATEGIES] = field(default_factory=lambda: MappingProxyType({}))
    """Entries of the strategies form that the user has changed, by field. They are kept when another plan opens."""
    played: Annotated[tuple[Played, ...], list_of(Record(Played)).sparse()] = ()
    """Progress in each level that the user has begun. It is kept when another plan opens."""
    slides: tuple[OwnSlide, ...] = ()
    """The user's slides. They are kept when another plan opens."""

    @property
    def shown(self) -> ScheduleReport | None:
        """Schedule that was opened or changed by hand. None if the page shows the answer of a search instead."""
        return self.opened if self.asked is None or self.by_hand is not None else None

    def hang_of(self, report: ScheduleReport | None) -> Hang | None:
        """Return the problem of ranks that follow the opened file.

        None if they have no problem, or if `report` is not the opened file's.
        """
        return self.hang if report is self.opened and self.by_hand is None else None

    def written_as(self, schedule: Schedule | None) -> Written | None:
        """Return the timing of the opened file that gives this schedule. None if no timing does."""
        if schedule is None or not self.written:
            return None
        starts = Made.of(schedule).starts
        return next((each for each in self.written if each.starts == starts), None)

    @property
    def config(self) -> Any:
        """Options of the chosen scheduler."""
        return self.configs.get(self.scheduler) or find_scheduler(self.scheduler).config()

    @property
    def question(self) -> Question:
        """Search question that the form describes now."""
        return Question(self.scheduler, self.plan, self.micro_batches, self.config)

    def edited(self, draft: PlanTables) -> Workspace:
        """Return the workspace with new tables. Invalid tables set `complaint`, and the last valid plan stays."""
        if draft == self.draft:
            return self
        try:
            return replace(self, draft=draft, plan=plan_of(draft), complaint="", played=self._course)
        except InputError as error:
            return replace(self, draft=draft, complaint=str(error))

    def with_plan(self, plan: MicroBatchPlan, source: str) -> Workspace:
        """Return the workspace with another plan.

        Scheduler and options stay, but schedules of the old plan are dropped.
        """
        return replace(
            self,
            source=source,
            sample="",
            plan=plan,
            draft=tables_of(plan),
            complaint="",
            asked=None,
            opened=None,
            by_hand=None,
            hang=None,
            written=(),
            played=self._course,
        )

    def play(self, level: str) -> Played:
        """Return the progress in a level."""
        return next((each for each in self.played if each.level == level), Played(level))

    def playing(self, played: Played) -> Workspace:
        """Return the workspace with new progress in a level."""
        others = tuple(each for each in self.played if each.level != played.level)
        return replace(self, played=others if played == Played(played.level) else (*others, played))

    @property
    def _course(self) -> tuple[Played, ...]:
        """Progress in all levels except the level that is the open plan."""
        return tuple(each for each in self.played if each.level != OWN)

    def changed_by_hand(self, report: ScheduleReport) -> Workspace:
        """Return the workspace that shows a schedule changed by hand."""
        return replace(self, opened=report, by_hand=self.by_hand or ByHand())

    def searching(self, question: Question) -> Workspace:
        """Return the workspace that shows the answer to a search question instead of an opened schedule.

        Changes by hand are dropped, but undo restores them.
        """
        return replace(self, asked=question, by_hand=None, opened=None if self.by_hand else self.opened)

    def carrying(self, other: Workspace) -> Workspace:
        """Return the workspace with the parts of `other` that are kept when another plan opens."""
        return replace(
            self,
            comparison=other.comparison,
            placing=other.placing,
            strategies=other.strategies,
            played=other._course,
            slides=other.slides,
        )

    def asking(self, scheduler: str, micro_batches: int, config: object) -> Workspace:
        """Return the workspace with another question about the same plan."""
        configs = with_config(self.configs, scheduler, config)
        return replace(self, scheduler=scheduler, micro_batches=micro_batches, configs=configs)

    def about(self, objective: str) -> Workspace:
        """Return the workspace with another objective.

        It changes in the form, in the latest question and in the opened schedule.
        """
        work = self.asking(self.scheduler, self.micro_batches, self.question.about(objective).config)
        asked = None if self.asked is None else self.asked.about(objective)
        return replace(work, asked=asked, opened=None if self.opened is None else self.opened.about(objective))

    def differs_in_more_than_answers(self, other: Workspace) -> bool:
        """Return whether the user changed something that undo should restore. Answers of searches do not count."""
        solved = {each.level: each.reached for each in other.played}
        played = tuple(replace(each, reached=solved.get(each.level, False)) for each in self.played)
        known = replace(self, asked=other.asked, ran=other.ran, played=played)
        if self.by_hand is None and other.by_hand is None:
            known = replace(known, opened=other.opened)
        return known != other


_WORKSPACE = Record(
    Workspace,
    without=(
        "token",
        "name",
        "plan",
        "draft",
        "complaint",
        "asked",
        "opened",
        "comparison",
        "placing",
        "ran",
        "slides",
    ),
)
"""File format of the fields, except those that the file stores elsewhere or in another form."""


def workspace_file(work: Workspace) -> WorkspaceFile:
    """Return the workspace as a file."""
    made = (made for slide in work.slides for _, made in slide.shown)
    questions = (*work.comparison.pairs, *(() if work.asked is None else (work.asked,)), *made)
    plans = tuple(dict.fromkeys((work.plan, *(question.plan for question in questions))))
    rest = {
        **_WORKSPACE.write(work),
        "plan": plans.index(work.plan),
        "draft": None if work.draft == tables_of(work.plan) else DRAFT.write(work.draft),
        "asked": None if work.asked is None else _question_document(work.asked, plans),
        "compared": [
            _pair_document(pair, plans) | _name_document(work.comparison, pair) for pair in work.comparison.pairs
        ],
        "reference": work.comparison.reference,
        "ran": None if work.ran is None else run_document(run_file(work.ran)),
    }
    if work.slides:
        rest["slides"] = [_slide_document(slide, plans) for slide in work.slides]
    file = WorkspaceFile(name=work.name, plans=plans, opened=_schedule(work.opened), rest=rest)
    placing = work.placing
    if placing == Placing():
        return file
    return replace(file, graph=placing.graph, mesh=placing.mesh, placing=PLACING.write(placing))


def workspace_of(file: WorkspaceFile, token: str) -> Workspace:
    """Return the workspace in a file. Its schedules are checked again.

    Raises InputError if parts are missing or unknown, a schedule breaks a rule, or a placement does not belong to its
    graph and devices.
    """
    fields = Fields(dict(file.rest), "")
    plan = file.plan
    draft = tables_of(plan) if fields.is_null("draft") else DRAFT.from_fields(fields.fields("draft"))
    return _WORKSPACE.from_fields(
        fields,
        *("plan", "draft", "asked", "compared", "reference", "ran", "slides"),
        token=token,
        name=file.name,
        plan=plan,
        draft=draft,
        complaint=_complaint(draft),
        asked=None if fields.is_null("asked") else _question(fields.fields("asked"), file),
        opened=None if file.opened is None else evaluate_file(file.opened),
        ran=None if fields.is_null("ran") else run_from(fields.fields("ran")).run,
        comparison=_comparison(fields, file),
        slides=_slides(fields, file),
        placing=Placing() if file.placing is None else placing_from(file.placing, file.graph, file.mesh),
    )


def _complaint(draft: PlanTables) -> str:
    try:
        plan_of(draft)
    except InputError as error:
        return str(error)
    return ""


def _comparison(fields: Fields, file: WorkspaceFile) -> Comparison:
    reference = None if fields.is_null("reference") else fields.integer("reference", least=0)
    entries = tuple(fields.objects("compared"))
    pairs = tuple(_pair(each, file) for each in entries)
    if reference is not None and reference >= len(pairs):
        raise InputError("reference", f"must be an index below {len(pairs)}, or null")
    names = zip(pairs, (each.text("name", "") for each in entries), strict=True)
    return Comparison(pairs, reference, {pair: name for pair, name in names if name})


def _slides(fields: Fields, file: WorkspaceFile) -> tuple[OwnSlide, ...]:
    found: tuple[OwnSlide, ...] = ()
    for each in fields.objects("slides") if fields.has("slides") else ():
        each.only("title", "text", "shown")
        shown = list[tuple[str, Made]]()
        for one in each.objects("shown"):
            made = _made(one, file)
            made.solve(Control())  # a schedule from a file is checked
            shown.append((one.text("name"), made))
        found = with_slide(found, OwnSlide(each.text("title"), each.text("text", ""), tuple(shown)))
    return found


def _slide_document(slide: OwnSlide, plans: Sequence[MicroBatchPlan]) -> dict[str, object]:
    shown = [_pair_document(made, plans) | {"name": name} for name, made in slide.shown]
    return {"title": slide.title, "text": slide.text, "shown": shown}


def _schedule(report: ScheduleReport | None) -> ScheduleFile | None:
    return None if report is None or report.solution is None else schedule_file(report.solution, report)


def _name_document(comparison: Comparison, pair: Pair) -> dict[str, object]:
    return {"name": comparison.names[pair]} if pair in comparison.names else {}


def _pair_document(pair: Pair, plans: Sequence[MicroBatchPlan]) -> dict[str, object]:
    if isinstance(pair, Question):
        return _question_document(pair, plans)
    return {"plan": plans.index(pair.plan), "starts": _STARTS.write(pair.starts)}


def _pair(fields: Fields, file: WorkspaceFile) -> Pair:
    return _made(fields, file) if fields.has("starts") else _question(fields, file, "name")


def _made(fields: Fields, file: WorkspaceFile) -> Made:
    fields.only("plan", "starts", "name")
    plan, starts = file.plan_at(fields), _STARTS.read(fields.take("starts"), fields.place("starts"))
    if not starts or any(len(row) != len(plan.blocks) for row in starts):
        raise InputError(fields.place("starts"), f"must have one list of {len(plan.blocks)} starts per micro-batch")
    return Made(plan, starts)


def _question_document(question: Question, plans: Sequence[MicroBatchPlan]) -> dict[str, object]:
    return {
        "scheduler": question.scheduler,
        "plan": plans.index(question.plan),
        "micro_batches": question.micro_batches,
        "options": changed_options(question.config),
    }


def _question(fields: Fields, file: WorkspaceFile, *beside: str) -> Question:
    fields.only("scheduler", "plan", "micro_batches", "options", *beside)
    scheduler = named(find_scheduler).read(fields.take("scheduler"), fields.place("scheduler"))
    plan, micro_batches = file.plan_at(fields), fields.integer("micro_batches", least=1)
    config = options_of_kind(find_scheduler(scheduler).config)
    return Question(scheduler, plan, micro_batches, config.read(fields.take("options"), fields.place("options")))

"""The work of one person as one value, read from files and written to them."""

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
"""The number of a new workspace."""


def _strategies_from(value: object, where: str) -> Mapping[str, str | bool]:
    """The strategies form, whose room is loaded only where the form is filled in."""
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
    """A run that stays where it is: a block of the plan, by its place there, and a micro-batch."""

    block: int
    micro_batch: int


@dataclass(frozen=True, slots=True)
class ByHand:
    """That somebody changed the schedule, and which of its runs stay when a search completes it."""

    pins: tuple[Pin, ...] = ()
    by_order: bool = False
    """Whether they keep only the order in which they stand on each device."""


@dataclass(frozen=True, slots=True)
class Hang:
    """Why ranks that do what an opened file says wait forever, or get another tensor than the one they ask for."""

    sentence: str
    runs: tuple[Pin, ...] = ()
    """Of which each waits for the next, and the last for the first; of another complaint, those that it names."""


@dataclass(frozen=True, slots=True)
class Written:
    """The opened file as it is written, where its receives wait in one of two ways."""

    receives: Annotated[str, one_of(tuple(Receives))]
    starts: Annotated[tuple[tuple[int, ...], ...], _STARTS]
    """Shaped (micro-batches, blocks)."""
    waits: Annotated[tuple[ReceiveWait, ...], list_of(Record(ReceiveWait))] = ()


@dataclass(frozen=True, slots=True)
class Played:
    """How far somebody is with a level of the course, or with the plan as a puzzle."""

    level: str
    placed: Annotated[tuple[tuple[int, ...], ...], _STARTS] = ()
    """Runs on the board: block, micro-batch and start each; lists of actions in the order that they were given;
    or the devices of each part that is assigned."""
    chosen: int | None = None
    """The stop of a knob that was shown last, the period of a block that is stamped, 1 for lists that run
    and assignments that are simulated."""
    reached: bool = False
    """Whether the best that is possible was reached, also where somebody plays on."""


OWN = "own"
"""The level that is the plan itself, with its number of micro-batches."""


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
    scheduler: Annotated[str, named(find_scheduler)] = DEFAULT_SCHEDULER
    micro_batches: Annotated[int, at_least(1)] = MICRO_BATCHES
    configs: Annotated[Mapping[str, Any], _CONFIGS] = field(default_factory=lambda: MappingProxyType({}))
    """Options by scheduler, where they were changed."""
    asked: Question | None = None
    """The question of the latest search, whose answer is found by it."""
    opened: ScheduleReport | None = None
    """The schedule that was opened instead of a plan, or changed by hand; or the exported answer to `asked`."""
    by_hand: ByHand | None = None
    """How `opened` was changed by hand."""
    hang: Hang | None = None
    """What goes wrong where ranks run `opened` as its file says, with its sends and receives."""
    written: Annotated[tuple[Written, ...], list_of(Record(Written)).sparse()] = ()
    """What was opened, with its receives in each way in which it does not hang."""
    comparison: Comparison = field(default_factory=Comparison)
    """The questions of the Compare page, carried along from plan to plan."""
    placing: Placing = field(default_factory=Placing)
    """The graph, the mesh and the placement that a plan may come from; it goes along as well."""
    ran: MeasuredRun | None = None
    """What became of a schedule of the plan when it ran last."""
    strategies: Annotated[Mapping[str, str | bool], _STRATEGIES] = field(default_factory=lambda: MappingProxyType({}))
    """Answers of the strategies form that are not as usual, by field; carried along as well."""
    played: Annotated[tuple[Played, ...], list_of(Record(Played)).sparse()] = ()
    """Levels of the course that were begun; they are carried along."""
    slides: tuple[OwnSlide, ...] = ()
    """Slides that somebody made; they are carried along."""

    @property
    def shown(self) -> ScheduleReport | None:
        """What was opened or changed by hand, until something is searched; None where an answer is shown instead."""
        return self.opened if self.asked is None or self.by_hand is not None else None

    def hang_of(self, report: ScheduleReport | None) -> Hang | None:
        """What goes wrong where the file that was opened is run as it says; None of every other report."""
        return self.hang if report is self.opened and self.by_hand is None else None

    def written_as(self, schedule: Schedule | None) -> Written | None:
        """The way in which receives wait in this schedule of the file that was opened; None of every other schedule."""
        if schedule is None or not self.written:
            return None
        starts = Made.of(schedule).starts
        return next((each for each in self.written if each.starts == starts), None)

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
            return replace(self, draft=draft, plan=plan_of(draft), complaint="", played=self._course)
        except InputError as error:
            return replace(self, draft=draft, complaint=str(error))

    def with_plan(self, plan: MicroBatchPlan, source: str) -> Workspace:
        """With another plan in the place of the present one; what is asked of it stays, as far as it goes."""
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
        """How far the level is."""
        return next((each for each in self.played if each.level == level), Played(level))

    def playing(self, played: Played) -> Workspace:
        """With a level as far as it is now."""
        others = tuple(each for each in self.played if each.level != played.level)
        return replace(self, played=others if played == Played(played.level) else (*others, played))

    @property
    def _course(self) -> tuple[Played, ...]:
        """What was played but for the plan itself."""
        return tuple(each for each in self.played if each.level != OWN)

    def changed_by_hand(self, report: ScheduleReport) -> Workspace:
        """With a schedule that somebody made from the one that was shown."""
        return replace(self, opened=report, by_hand=self.by_hand or ByHand())

    def searching(self, question: Question) -> Workspace:
        """With a search as the latest, whose answer stands before what was opened; what was changed by hand is left to
        undo."""
        return replace(self, asked=question, by_hand=None, opened=None if self.by_hand else self.opened)

    def carrying(self, other: Workspace) -> Workspace:
        """With what goes along from plan to plan."""
        return replace(
            self,
            comparison=other.comparison,
            placing=other.placing,
            strategies=other.strategies,
            played=other._course,
            slides=other.slides,
        )

    def asking(self, scheduler: str, micro_batches: int, config: object) -> Workspace:
        """With another question about the same plan."""
        configs = with_config(self.configs, scheduler, config)
        return replace(self, scheduler=scheduler, micro_batches=micro_batches, configs=configs)

    def about(self, objective: str) -> Workspace:
        """Asking for another objective of the same search: in the form, of the last search and of what was opened."""
        work = self.asking(self.scheduler, self.micro_batches, self.question.about(objective).config)
        asked = None if self.asked is None else self.asked.about(objective)
        return replace(work, asked=asked, opened=None if self.opened is None else self.opened.about(objective))

    def differs_in_more_than_answers(self, other: Workspace) -> bool:
        """True where a person changed something that can be undone; having searched is nothing to undo."""
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
"""The fields that stand elsewhere in a file, or in another form, left out; all others are kept as their types say."""


def workspace_file(work: Workspace) -> WorkspaceFile:
    """The workspace as it is kept."""
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
    """The workspace that was kept; its schedule is checked again, since it comes from a file.

    Raises InputError with the place and the reason: for what is missing or not known, for a schedule that breaks a
    rule, and for a placement that does not belong to its graph and devices.
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
        raise InputError("reference", f"must be a position in the {len(pairs)} compared, or null")
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
        raise InputError(fields.place("starts"), f"must be lists of {len(plan.blocks)} starts, one a micro-batch")
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

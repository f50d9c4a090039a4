"""tessel-workspace, version 1: one person's work on one plan, whole and in one file.

Every plan stands once, in `plans`, and is named by its position there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_items, as_text, header, read_inside, read_with
from tessel_core.formats.placing_file import KeptPlacing, Options, options_from, placing_document, placing_from
from tessel_core.formats.plan_file import plan_document, plan_from
from tessel_core.formats.schedule_file import ScheduleFile, schedule_document, schedule_from
from tessel_core.formats.tables import (
    BLOCK_COLUMNS,
    DEPENDENCY_COLUMNS,
    DEVICE_COLUMNS,
    LIST_COLUMNS,
    NUMBER_COLUMNS,
    PlanTables,
    Row,
    tables_of,
)
from tessel_core.model import MicroBatchPlan

FORMAT = "tessel-workspace"
LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class KeptQuestion:
    """What was asked of a scheduler, in plain values."""

    scheduler: str
    plan: MicroBatchPlan
    micro_batches: int
    options: Options


@dataclass(frozen=True, kw_only=True)
class WorkspaceFile:
    """A workspace as it is kept: what is open, what is asked of it, and what it is compared with."""

    name: str
    source: str
    """Where the plan comes from, in a few words."""
    sample: str
    """Name of the sample; empty for everything else."""
    plan: MicroBatchPlan
    """The last valid plan."""
    draft: PlanTables
    """What the tables say, a plan or not."""
    scheduler: str
    micro_batches: int
    options: Mapping[str, Options]
    """By scheduler, where they were changed."""
    asked: KeptQuestion | None = None
    opened: ScheduleFile | None = None
    """The schedule that was opened with the plan; the referee has not judged it yet."""
    compared: tuple[KeptQuestion, ...] = ()
    reference: int | None = None
    """Which of `compared` the others are held against."""
    placing: KeptPlacing | None = None
    """What leads to a placement; None where nothing was done about it."""
    strategies: Options = field(default_factory=dict)
    """What is asked about strategies, by field, where it is not as usual."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.reference is not None and not 0 <= self.reference < len(self.compared):
            raise InputError("reference", f"must be a position in the {len(self.compared)} compared, or null")


def check_name(name: str) -> None:
    """Raise InputError for what cannot be the name of a workspace."""
    if not name.strip():
        raise InputError("name", "is empty")
    if len(name) > LONGEST_NAME or not name.isprintable():
        raise InputError("name", f"must be at most {LONGEST_NAME} printable characters, got {name[:40]!a}")


def read_workspace(data: bytes, name: str = "workspace") -> WorkspaceFile:
    """A workspace from the bytes of a tessel-workspace file; InputError with the place and the reason."""
    return read_with(workspace_from, data, name)


def workspace_from(fields: Fields) -> WorkspaceFile:
    """A workspace from a parsed document."""
    header(fields, FORMAT)
    fields.only(
        *("format", "version", "name", "source", "sample", "plans", "plan", "draft", "scheduler", "micro_batches"),
        *("options", "asked", "opened", "compared", "reference", "placing", "strategies"),
    )
    plans = tuple(read_inside(plan_from, each) for each in fields.objects("plans"))
    plan = _plan(fields, plans)
    options = fields.fields("options")
    return WorkspaceFile(
        name=fields.text("name"),
        source=fields.text("source"),
        sample=fields.text("sample"),
        plan=plan,
        draft=tables_of(plan) if fields.is_null("draft") else _draft(fields.fields("draft")),
        scheduler=fields.text("scheduler"),
        micro_batches=fields.integer("micro_batches", least=1),
        options={scheduler: options_from(options.fields(scheduler)) for scheduler in options.named()},
        asked=None if fields.is_null("asked") else _question(fields.fields("asked"), plans),
        opened=None if fields.is_null("opened") else read_inside(schedule_from, fields.fields("opened")),
        compared=tuple(_question(each, plans) for each in fields.objects("compared")),
        reference=None if fields.is_null("reference") else fields.integer("reference", least=0),
        placing=None if fields.is_null("placing") else placing_from(fields.fields("placing")),
        strategies={} if fields.is_null("strategies") else options_from(fields.fields("strategies")),
    )


def _plan(fields: Fields, plans: Sequence[MicroBatchPlan]) -> MicroBatchPlan:
    position = fields.integer("plan", least=0)
    if position >= len(plans):
        raise InputError(fields.place("plan"), f"must be a position in the {len(plans)} plans, got {position}")
    return plans[position]


def _question(fields: Fields, plans: Sequence[MicroBatchPlan]) -> KeptQuestion:
    fields.only("scheduler", "plan", "micro_batches", "options")
    return KeptQuestion(
        fields.text("scheduler"),
        _plan(fields, plans),
        fields.integer("micro_batches", least=1),
        options_from(fields.fields("options")),
    )


def _draft(fields: Fields) -> PlanTables:
    fields.only("name", "time_unit", "memory_unit", "devices", "blocks", "dependencies")
    return PlanTables(
        fields.text("name"),
        fields.text("time_unit"),
        fields.text("memory_unit"),
        tuple(_row(each, DEVICE_COLUMNS) for each in fields.objects("devices")),
        tuple(_row(each, BLOCK_COLUMNS) for each in fields.objects("blocks")),
        tuple(_row(each, DEPENDENCY_COLUMNS) for each in fields.objects("dependencies")),
    )


def _row(fields: Fields, columns: Sequence[str]) -> Row:
    fields.only(*columns)
    return {column: _cell(fields, column) for column in columns}


def _cell(fields: Fields, column: str) -> object:
    """What somebody may have typed: nothing, or a number, text or list of names as the column has them."""
    value, where = fields.take(column), fields.place(column)
    if value is None:
        return None
    if column in LIST_COLUMNS:
        return [as_text(each, place) for each, place in as_items(value, where)]
    return _typed(value, where) if column in NUMBER_COLUMNS else as_text(value, where)


def _typed(value: object, where: str) -> int:
    """A whole number as a table can hold it: a draft may go beyond what a plan may."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise InputError(where, "must be a whole number of at most 64 bits")
    return value


def workspace_text(work: WorkspaceFile) -> str:
    """The text of a tessel-workspace file."""
    questions = (*work.compared, *(() if work.asked is None else (work.asked,)))
    plans = tuple(dict.fromkeys((work.plan, *(question.plan for question in questions))))
    document: dict[str, object] = {
        "format": FORMAT,
        "version": 1,
        "name": work.name,
        "source": work.source,
        "sample": work.sample,
        "plans": [plan_document(plan) for plan in plans],
        "plan": plans.index(work.plan),
        "draft": None if work.draft == tables_of(work.plan) else _draft_document(work.draft),
        "scheduler": work.scheduler,
        "micro_batches": work.micro_batches,
        "options": {scheduler: dict(options) for scheduler, options in work.options.items()},
        "asked": None if work.asked is None else _question_document(work.asked, plans),
        "opened": None if work.opened is None else schedule_document(work.opened),
        "compared": [_question_document(question, plans) for question in work.compared],
        "reference": work.reference,
        "placing": None if work.placing is None else placing_document(work.placing),
        "strategies": dict(work.strategies),
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False) + "\n"


def _question_document(question: KeptQuestion, plans: Sequence[MicroBatchPlan]) -> dict[str, object]:
    return {
        "scheduler": question.scheduler,
        "plan": plans.index(question.plan),
        "micro_batches": question.micro_batches,
        "options": dict(question.options),
    }


def _draft_document(draft: PlanTables) -> dict[str, object]:
    return {
        "name": draft.name,
        "time_unit": draft.time_unit,
        "memory_unit": draft.memory_unit,
        "devices": [dict(row) for row in draft.devices],
        "blocks": [dict(row) for row in draft.blocks],
        "dependencies": [dict(row) for row in draft.dependencies],
    }

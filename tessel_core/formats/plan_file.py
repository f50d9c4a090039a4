"""The format tessel-plan, version 1."""

from __future__ import annotations

from tessel_core.formats.fields import document_text, read_with
from tessel_core.formats.record import COUNT, TEXT, Record, at_least, codec_of, list_of, or_null
from tessel_core.model import Block, Dependency, MicroBatchPlan, PlanDevice

_DEVICE = Record(PlanDevice, memory_capacity=or_null(COUNT), static_memory=COUNT)
_BLOCK = Record(Block, devices=list_of(COUNT), duration=at_least(1), label=TEXT.sparse())
_DEPENDENCY = Record(Dependency, predecessor=TEXT.under("from"), successor=TEXT.under("to"), lag=COUNT)
PLAN = Record(
    MicroBatchPlan,
    *("name", "time_unit", "memory_unit"),
    format="tessel-plan",
    time_unit=TEXT.required(),
    memory_unit=TEXT.required(),
    devices=list_of(_DEVICE),
    blocks=list_of(_BLOCK),
    dependencies=list_of(_DEPENDENCY).required(),
    samples=at_least(1).sparse(),
    replicated=codec_of(bool).sparse(),
)
"""Codec of a plan, as a file of its own or inside a schedule.

All optional fields are written, except empty labels, missing samples and `replicated` if it is false.
"""


def read_plan(data: bytes, name: str = "plan") -> MicroBatchPlan:
    """Read the bytes of a tessel-plan file.  Raises InputError with `name`, the place and the reason."""
    return read_with(PLAN.from_fields, data, name)


def plan_text(plan: MicroBatchPlan) -> str:
    """Return the text of a tessel-plan file, with one line per device, block or dependency."""
    return document_text(PLAN.write(plan))

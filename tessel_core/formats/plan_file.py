"""tessel-plan, version 1."""

from __future__ import annotations

from tessel_core.errors import InputError
from tessel_core.formats.fields import Fields, as_integer, document_text, header, read_with
from tessel_core.model import Block, BlockKind, Dependency, MicroBatchPlan, PlanDevice

FORMAT = "tessel-plan"


def read_plan(data: bytes, name: str = "plan") -> MicroBatchPlan:
    """A plan from the bytes of a tessel-plan file; InputError with the place and the reason, `name` first."""
    return read_with(plan_from, data, name)


def plan_from(fields: Fields) -> MicroBatchPlan:
    """A plan from a parsed document, alone or inside a schedule."""
    header(fields, FORMAT)
    fields.only("format", "version", "name", "time_unit", "memory_unit", "devices", "blocks", "dependencies")
    return MicroBatchPlan(
        name=fields.text("name"),
        devices=tuple(_device(each) for each in fields.objects("devices")),
        blocks=tuple(_block(each) for each in fields.objects("blocks")),
        dependencies=tuple(_dependency(each) for each in fields.objects("dependencies")),
        time_unit=fields.text("time_unit"),
        memory_unit=fields.text("memory_unit"),
    )


def _device(fields: Fields) -> PlanDevice:
    fields.only("name", "memory_capacity", "static_memory")
    capacity = None if fields.is_null("memory_capacity") else fields.integer("memory_capacity", least=0)
    return PlanDevice(fields.text("name"), capacity, fields.integer("static_memory", 0, least=0))


def _block(fields: Fields) -> Block:
    fields.only("name", "kind", "devices", "duration", "memory")
    kind = fields.text("kind")
    if kind not in tuple(BlockKind):
        raise InputError(fields.place("kind"), f"must be one of {', '.join(BlockKind)}, got {kind!r}")
    return Block(
        name=fields.text("name"),
        kind=BlockKind(kind),
        devices=tuple(as_integer(value, place, least=0) for value, place in fields.items("devices")),
        duration=fields.integer("duration", least=1),
        memory=fields.integer("memory", 0),
    )


def _dependency(fields: Fields) -> Dependency:
    fields.only("from", "to", "lag")
    return Dependency(fields.text("from"), fields.text("to"), fields.integer("lag", 0, least=0))


def plan_document(plan: MicroBatchPlan) -> dict[str, object]:
    """The plan as a JSON-ready document, every optional field written out."""
    return {
        "format": FORMAT,
        "version": 1,
        "name": plan.name,
        "time_unit": plan.time_unit,
        "memory_unit": plan.memory_unit,
        "devices": [
            {"name": d.name, "memory_capacity": d.memory_capacity, "static_memory": d.static_memory}
            for d in plan.devices
        ],
        "blocks": [
            {
                "name": b.name,
                "kind": str(b.kind),
                "devices": list(b.devices),
                "duration": b.duration,
                "memory": b.memory,
            }
            for b in plan.blocks
        ],
        "dependencies": [{"from": d.predecessor, "to": d.successor, "lag": d.lag} for d in plan.dependencies],
    }


def plan_text(plan: MicroBatchPlan) -> str:
    """The plan as the text of a tessel-plan file, one device, block or dependency a line."""
    return document_text(plan_document(plan))

"""Networks by the names that people know: presets, and what they say of a family's sizes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tessel_core.networks.graphs.spec import GraphSpec
from tessel_core.networks.graphs.table import GRAPHS
from tessel_core.strategies.families import Family, find_family


def preset_network(name: str) -> tuple[Family, Mapping[str, Any]] | None:
    """The family of a preset, and the sizes that it says; None for another name."""
    for known in GRAPHS.values():
        if name in known.presets:
            return find_family(known.name), sizes_said(known.name, known.presets[name])
    return None


def preset_names() -> tuple[str, ...]:
    """All presets, those of one family together."""
    return tuple(name for known in GRAPHS.values() for name in known.presets)


def sizes_said(family: str, spec: GraphSpec) -> dict[str, Any]:
    """What a spec of the table of graphs says that may be asked of a family."""
    asked = find_family(family)
    common = {each.name for each in fields(GraphSpec)}
    known = {size.name for size in asked.sizes} | set(asked.options)
    return {each.name: getattr(spec, each.name) for each in fields(spec) if each.name in known - common}

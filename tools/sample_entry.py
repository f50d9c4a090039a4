"""What every sample says of itself, whatever kind of file it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tessel_core.formats import graph_text, mesh_text, plan_text
from tessel_core.model import DeviceMesh, MicroBatchPlan, OperatorGraph

_TEXT: dict[type, Callable[[Any], str]] = {MicroBatchPlan: plan_text, OperatorGraph: graph_text, DeviceMesh: mesh_text}


@dataclass(frozen=True, slots=True)
class Entry:
    """One sample to be written."""

    title: str
    description: str
    provenance: str
    family: str
    content: MicroBatchPlan | OperatorGraph | DeviceMesh

    @property
    def name(self) -> str:
        """Also that of its file, without the suffix."""
        return self.content.name

    @property
    def text(self) -> str:
        """What its file holds."""
        return _TEXT[type(self.content)](self.content)

    @property
    def row(self) -> dict[str, str]:
        """What the catalogue says of it."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "provenance": self.provenance,
            "family": self.family,
        }

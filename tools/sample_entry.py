"""Catalogue entry of a sample file of any kind."""

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
        """Name of the sample, and of its file without the suffix."""
        return self.content.name

    @property
    def text(self) -> str:
        """Text of the sample's file."""
        return _TEXT[type(self.content)](self.content)

    @property
    def row(self) -> dict[str, str]:
        """Row of the sample in the catalogue."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "provenance": self.provenance,
            "family": self.family,
        }

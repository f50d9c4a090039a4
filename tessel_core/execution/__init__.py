"""Running what was found: what each rank does in which order, and whether that can hang."""

from tessel_core.execution.actions import Action, ActionKind, RankActions
from tessel_core.execution.certificate import Channels, HangCertificate, Place, Verdict
from tessel_core.execution.hang import check_channels
from tessel_core.execution.orders import csv_actions, program_actions, schedule_actions

__all__ = [
    "Action",
    "ActionKind",
    "Channels",
    "HangCertificate",
    "Place",
    "RankActions",
    "Verdict",
    "check_channels",
    "csv_actions",
    "program_actions",
    "schedule_actions",
]

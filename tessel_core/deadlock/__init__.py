"""Checks of the order in which ranks compute, send and receive: whether it can deadlock, and how long it takes."""

from tessel_core.deadlock.actions import Action, ActionKind, RankActions
from tessel_core.deadlock.certificate import Channels, HangCertificate, Place, Verdict
from tessel_core.deadlock.hang import check_channels
from tessel_core.deadlock.orders import csv_actions, program_actions, schedule_actions

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

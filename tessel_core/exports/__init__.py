"""Results as files that people take away to other programs."""

from tessel_core.exports.csv import schedule_csv
from tessel_core.exports.table import EXPORTS, Export, export_for, export_schedule, find_export

__all__ = [
    "EXPORTS",
    "Export",
    "export_for",
    "export_schedule",
    "find_export",
    "schedule_csv",
]

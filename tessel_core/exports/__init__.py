"""Write results as files for people and for other programs."""

from tessel_core.exports.table import EXPORTS, Export, export_for, export_schedule, find_export, schedule_csv

__all__ = ["EXPORTS", "Export", "export_for", "export_schedule", "find_export", "schedule_csv"]

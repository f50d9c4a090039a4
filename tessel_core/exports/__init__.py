"""Results as files that people take away to other programs."""

from tessel_core.exports.csv import schedule_csv
from tessel_core.exports.simulation_files import (
    SIMULATION_EXPORTS,
    SimulationExport,
    export_simulation,
    simulation_export_for,
)
from tessel_core.exports.table import EXPORTS, Export, export_for, export_schedule, find_export

__all__ = [
    "EXPORTS",
    "SIMULATION_EXPORTS",
    "Export",
    "SimulationExport",
    "export_for",
    "export_schedule",
    "export_simulation",
    "find_export",
    "schedule_csv",
    "simulation_export_for",
]

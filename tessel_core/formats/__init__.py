"""File formats. Readers check every value. An error names the place of the wrong value in the file."""

from tessel_core.formats.files import read_file, write_file
from tessel_core.formats.graph_file import GraphFile, graph_text, read_graph
from tessel_core.formats.mesh_file import MeshFile, mesh_text, read_mesh
from tessel_core.formats.placement_file import PlacementFile, placement_text, read_placement
from tessel_core.formats.plan_file import plan_text, read_plan
from tessel_core.formats.schedule_file import ScheduleFile, read_schedule, schedule_text
from tessel_core.formats.workspace_file import WorkspaceFile, read_workspace, workspace_text

__all__ = [
    "GraphFile",
    "MeshFile",
    "PlacementFile",
    "ScheduleFile",
    "WorkspaceFile",
    "graph_text",
    "mesh_text",
    "placement_text",
    "plan_text",
    "read_file",
    "read_graph",
    "read_mesh",
    "read_placement",
    "read_plan",
    "read_schedule",
    "read_workspace",
    "schedule_text",
    "workspace_text",
    "write_file",
]

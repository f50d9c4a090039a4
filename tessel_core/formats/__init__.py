"""Files people keep: the only place where dicts live.  Reading checks everything and says what is wrong and where."""

from tessel_core.formats.answer_file import answer_text, read_answer
from tessel_core.formats.files import (
    check_place,
    read_any,
    read_file,
    read_graph_file,
    read_known,
    read_mesh_file,
    read_text,
    refused,
    write_file,
)
from tessel_core.formats.graph_file import (
    GraphFile,
    SplitFile,
    graph_file_text,
    graph_text,
    read_graph,
    split_placement,
)
from tessel_core.formats.grid import grid_text, read_grid
from tessel_core.formats.mesh_file import MeshFile, mesh_text, read_mesh
from tessel_core.formats.placement_file import (
    PlacementFile,
    PlacementTerms,
    assignment_document,
    bound_placement,
    placement_text,
    read_placement,
)
from tessel_core.formats.plan_file import plan_document, plan_text, read_plan
from tessel_core.formats.schedule_file import ScheduleFile, plain_number, read_schedule, schedule_file, schedule_text
from tessel_core.formats.tessel_json import read_tessel_json, tessel_json_text, unsaid_block
from tessel_core.formats.workspace_file import WorkspaceFile, read_workspace, workspace_text

__all__ = [
    "GraphFile",
    "MeshFile",
    "PlacementFile",
    "PlacementTerms",
    "ScheduleFile",
    "SplitFile",
    "WorkspaceFile",
    "answer_text",
    "assignment_document",
    "bound_placement",
    "check_place",
    "graph_file_text",
    "graph_text",
    "grid_text",
    "mesh_text",
    "placement_text",
    "plain_number",
    "plan_document",
    "plan_text",
    "read_answer",
    "read_any",
    "read_file",
    "read_graph",
    "read_graph_file",
    "read_grid",
    "read_known",
    "read_mesh",
    "read_mesh_file",
    "read_placement",
    "read_plan",
    "read_schedule",
    "read_tessel_json",
    "read_text",
    "read_workspace",
    "refused",
    "schedule_file",
    "schedule_text",
    "split_placement",
    "tessel_json_text",
    "unsaid_block",
    "workspace_text",
    "write_file",
]

"""Files people keep: the only place where dicts live.  Reading checks everything and says what is wrong and where."""

from tessel_core.formats.answer_file import answer_text, read_answer
from tessel_core.formats.files import check_place, read_file, read_text, write_file
from tessel_core.formats.grid import grid_text, read_grid
from tessel_core.formats.plan_file import plan_document, plan_text, read_plan
from tessel_core.formats.schedule_file import (
    ScheduleFile,
    ScheduleFileReport,
    read_schedule,
    schedule_file,
    schedule_text,
)
from tessel_core.formats.tessel_json import read_tessel_json, tessel_json_text, unsaid_block
from tessel_core.formats.workspace_file import KeptQuestion, WorkspaceFile, check_name, read_workspace, workspace_text

__all__ = [
    "KeptQuestion",
    "ScheduleFile",
    "ScheduleFileReport",
    "WorkspaceFile",
    "answer_text",
    "check_name",
    "check_place",
    "grid_text",
    "plan_document",
    "plan_text",
    "read_answer",
    "read_file",
    "read_grid",
    "read_plan",
    "read_schedule",
    "read_tessel_json",
    "read_text",
    "read_workspace",
    "schedule_file",
    "schedule_text",
    "tessel_json_text",
    "unsaid_block",
    "workspace_text",
    "write_file",
]

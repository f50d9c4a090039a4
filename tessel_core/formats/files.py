"""Bytes on disk: bounded reads, and writes that are whole or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from io import FileIO
from pathlib import Path

from tessel_core.errors import InputError, find
from tessel_core.formats.fields import LARGEST_FILE, LARGEST_ONNX, Fields, looks_like_onnx, read_with
from tessel_core.formats.graph_file import (
    GraphFile,
    SplitFile,
    graph_from,
    looks_like_published_graph,
    looks_like_split,
    split_from,
)
from tessel_core.formats.mesh_file import MeshFile, mesh_from
from tessel_core.formats.onnx import OnnxModel
from tessel_core.formats.placement_file import PLACEMENT, PlacementFile
from tessel_core.formats.plan_file import PLAN
from tessel_core.formats.pytorch_csv import PyTorchCsv, looks_like_pytorch_csv, read_pytorch_csv
from tessel_core.formats.pytorch_schedule import ASSUMED, csv_schedule
from tessel_core.formats.pytorch_trace import MEASURED, PipelineTrace, looks_like_trace, trace_from, trace_schedule
from tessel_core.formats.run_file import RunFile, run_from
from tessel_core.formats.schedule_file import ScheduleFile, schedule_from
from tessel_core.formats.tessel_json import looks_like_tessel_json, tessel_json_from
from tessel_core.formats.workspace_file import WorkspaceFile, workspace_from
from tessel_core.model import MicroBatchPlan

Contents = MicroBatchPlan | ScheduleFile | WorkspaceFile
"""Files that the app opens."""

Known = Contents | GraphFile | OnnxModel | MeshFile | PlacementFile | SplitFile | PyTorchCsv | PipelineTrace | RunFile
"""The contents of any file; `a_kind` names them."""

_READERS: dict[str, Callable[[Fields], Known]] = {
    "tessel-plan": PLAN.from_fields,
    "tessel-schedule": schedule_from,
    "tessel-workspace": workspace_from,
    "tessel-graph": graph_from,
    "tessel-mesh": mesh_from,
    "tessel-placement": PLACEMENT.from_fields,
    "tessel-run": run_from,
}
_KINDS: dict[type, str] = {
    MicroBatchPlan: "a plan",
    ScheduleFile: "a schedule",
    WorkspaceFile: "a workspace",
    GraphFile: "an operator graph",
    OnnxModel: "an ONNX model",
    MeshFile: "a device mesh",
    PlacementFile: "a placement",
    SplitFile: "a split",
    PyTorchCsv: "a PyTorch schedule",
    PipelineTrace: "a trace of PyTorch's profiler",
    RunFile: "a measured run",
}


def read_bytes(path: Path) -> bytes:
    """The file's bytes, of an ONNX model those beside its weights, which are not read and so may be of any size.

    Raises InputError, one clear sentence, where it is missing, no regular file, unreadable or too large.
    """
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise InputError(str(path), "is a folder, not a file" if path.is_dir() else "is not a regular file")
        # A buffered file is read in pieces, which are twice in memory when they are joined.
        with path.open("rb", buffering=0) as file:
            if looks_like_onnx(file.read(min(size, 1))):
                return _without_weights(file, size, str(path))
            if size > LARGEST_FILE:
                raise InputError(str(path), f"has {size:,} bytes, more than the {LARGEST_FILE:,} that are read")
            file.seek(0)
            return file.read(size)
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    except InputError:
        raise
    except ValueError:  # a NUL, or half a character
        raise InputError(ascii(str(path)), "cannot be the name of a file") from None


def room_for_uploads(server: int) -> int:
    """Megabytes of 2^20 bytes: the largest upload that a server which takes so many has room for, at most 2 GB.

    An upload lies in the folder for temporary files while it arrives, and is then twice in memory for a moment.
    """
    try:
        disk = shutil.disk_usage(tempfile.gettempdir()).free
    except OSError:
        disk = 0
    # The server counts what the browser sends around a file, too.
    return max(1, min(server - 1, min(LARGEST_ONNX, disk, free_memory() // 2) // 2**20))


def free_memory() -> int:
    """Bytes of the machine; where the system does not say, as much as is ever needed."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 2 * LARGEST_ONNX


def is_onnx(data: bytes, name: str) -> bool:
    """Whether a file is to be read as an ONNX model."""
    return looks_like_onnx(data) or name.lower().endswith(".onnx")


def read_path(text: str) -> tuple[bytes, str]:
    """As `read_bytes`, with the file's name, of a path that somebody typed; ~ is one's own folder.

    Raises InputError where the path does not begin at the root, which no folder of the person's stands for, as well.
    """
    try:
        path = Path(text.strip()).expanduser()
    except RuntimeError as error:
        raise InputError(ascii(text.strip()), f"{error}") from None
    if not path.is_absolute():
        raise InputError(text.strip(), "is not a whole path, such as ~/models/network.onnx")
    return read_bytes(path), path.name


def _without_weights(file: FileIO, size: int, name: str) -> bytes:
    from tessel_core.formats.onnx.skeleton import OnDisk, skeleton_of

    try:
        return skeleton_of(OnDisk(file, size))
    except InputError as error:
        raise error.within(name) from None


def read_known(data: bytes, name: str) -> Known:
    """The contents of a document of any kind, JSON, ONNX or CSV; `name` is used in complaints."""
    if is_onnx(data, name):
        return OnnxModel.of(data, name)
    if looks_like_pytorch_csv(data, name):
        return read_pytorch_csv(data, name)
    return read_with(_read_known, data, name)


def read_any(path: Path, name: str = "") -> Known:
    """As `read_known`, from a file; complaints call it by `name`, where people called it something else."""
    return read_known(read_bytes(path), name or str(path))


def read_text(data: bytes, name: str) -> Contents:
    """A plan, a schedule, that of a measured run too, or a workspace, whichever the document says it is.

    Raises InputError for anything else.
    """
    return contents_of(read_known(data, name), name)


def contents_of(found: Known, name: str) -> Contents:
    """What was read, where it is or holds one of these, as `read_text`."""
    if isinstance(found, Contents):
        return found
    if isinstance(found, RunFile):
        return found.schedule
    if isinstance(found, PyTorchCsv | PipelineTrace):
        try:
            return foreign_schedule([found])
        except InputError as error:
            raise error.within(name) from None
    raise refused(found, name, "a plan or a schedule")


def foreign_schedule(found: Sequence[PyTorchCsv | PipelineTrace]) -> ScheduleFile:
    """The schedule in PyTorch's CSV, or in traces of its ranks, which go together; `reading_of` says how it is read.

    Raises InputError where they hold no whole schedule.
    """
    traces = [each for each in found if isinstance(each, PipelineTrace)]
    if traces:
        return ScheduleFile(trace_schedule(traces), "pytorch-trace", None)
    (csv,) = (each for each in found if isinstance(each, PyTorchCsv))
    return ScheduleFile(csv_schedule(csv), "pytorch-csv", None)


def reading_of(found: PyTorchCsv | PipelineTrace) -> str:
    """What durations and starts of such a schedule are, and what it lacks of the file, without a full stop."""
    if isinstance(found, PipelineTrace):
        return MEASURED
    return f"{ASSUMED}; the order of computing is kept, sends and receives are not" if found.communicates else ASSUMED


def read_file(path: Path, name: str = "") -> Contents:
    """As `read_text`, from a file; `name` as for `read_any`."""
    return read_text(read_bytes(path), name or str(path))


def read_mesh_file(path: Path) -> MeshFile:
    """A device mesh; InputError where the file holds something else."""
    found = read_any(path)
    if isinstance(found, MeshFile):
        return found
    raise refused(found, str(path), "a device mesh")


def refused(found: Known, name: str, wanted: str) -> InputError:
    """What to say of a file that holds something else than is wanted."""
    return InputError(name, f"is {a_kind(found)}, where {wanted} is wanted")


def a_kind(found: Known) -> str:
    """The kind of file with its article: "a plan", "an operator graph"."""
    return _KINDS[type(found)]


def _read_known(fields: Fields) -> Known:
    if looks_like_published_graph(fields):
        return graph_from(fields)
    if looks_like_split(fields):
        return split_from(fields)
    if looks_like_trace(fields):
        return trace_from(fields)
    if looks_like_tessel_json(fields):
        return ScheduleFile(tessel_json_from(fields), "tessel-json", None)
    return find(_READERS, fields.text("format"), "format")(fields)


def check_place(path: Path, source: Path | None = None) -> None:
    """Raise InputError where `path` cannot become a file, before any work is spent on what to write there.

    Nor may it be `source`, the file that is read, by whatever name: work from elsewhere is not overwritten.
    """
    if path.is_dir():
        raise InputError(str(path), "is a folder, not a file")
    if source is not None and path.exists() and source.exists() and path.samefile(source):
        raise InputError(str(path), "is the file that is read, and is not overwritten; choose another name")
    if not _is_device(path) and not os.access(Path(os.path.realpath(path)).parent, os.W_OK | os.X_OK):
        raise InputError(str(path), "cannot be written: its folder is missing or not writable")


def write_file(path: Path, content: str | bytes) -> None:
    """Write beside and rename, so that `path` holds the old file or the whole new one; text is written as UTF-8.

    A device or a pipe, such as /dev/stdout, is written into: to rename over it would take it from the whole machine.
    A link stays a link. Raises InputError when the place cannot be written; nothing is left behind.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if _is_device(path):
            path.write_bytes(data)
            return
        place = Path(os.path.realpath(path))
        descriptor, beside = tempfile.mkstemp(dir=place.parent, prefix=f".{place.name}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.chmod(beside, 0o666 & ~_umask())
            os.replace(beside, place)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror}") from None


def _is_device(path: Path) -> bool:
    """Whether something is there that is no regular file and no folder, such as a device or a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

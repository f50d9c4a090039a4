"""Read files up to a size limit, recognize their format, and write files atomically."""

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
"""Contents of the files that the app opens."""

Known = Contents | GraphFile | OnnxModel | MeshFile | PlacementFile | SplitFile | PyTorchCsv | PipelineTrace | RunFile
"""Contents of any known file; `a_kind` names their kind."""

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
    """Read the bytes of a file. The weights of an ONNX model are not read, so its file may have any size.

    Raises InputError if the file is missing, not regular, unreadable or too large.
    """
    try:
        size = path.stat().st_size
        if not path.is_file():
            raise InputError(str(path), "is a folder, not a file" if path.is_dir() else "is not a regular file")
        # Without buffering, because joining the pieces of a buffered read needs twice the memory.
        with path.open("rb", buffering=0) as file:
            if looks_like_onnx(file.read(min(size, 1))):
                return _without_weights(file, size, str(path))
            if size > LARGEST_FILE:
                raise InputError(str(path), f"has {size:,} bytes, more than the limit of {LARGEST_FILE:,}")
            file.seek(0)
            return file.read(size)
    except OSError as error:
        raise InputError(str(path), error.strerror or "cannot be read") from None
    except InputError:
        raise
    except ValueError:  # a NUL or a lone surrogate
        raise InputError(ascii(str(path)), "cannot be the name of a file") from None


def room_for_uploads(server: int) -> int:
    """Return the largest possible upload in MiB, at most 2 GB, for a server whose limit is `server` MiB.

    An upload needs its size in the temporary folder, and for a moment twice its size in memory.
    """
    try:
        disk = shutil.disk_usage(tempfile.gettempdir()).free
    except OSError:
        disk = 0
    # Subtract 1 MiB: the server's limit includes the rest of the request.
    return max(1, min(server - 1, min(LARGEST_ONNX, disk, free_memory() // 2) // 2**20))


def free_memory() -> int:
    """Return the available memory of the machine in bytes; if it is unknown, enough for the largest file."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return 2 * LARGEST_ONNX


def is_onnx(data: bytes, name: str) -> bool:
    """Return whether a file should be read as an ONNX model."""
    return looks_like_onnx(data) or name.lower().endswith(".onnx")


def read_path(text: str) -> tuple[bytes, str]:
    """Read the file at a path that the user typed. Return its bytes and its name. ~ means the home folder.

    Raises InputError like `read_bytes`, and for a relative path.
    """
    try:
        path = Path(text.strip()).expanduser()
    except RuntimeError as error:
        raise InputError(ascii(text.strip()), f"{error}") from None
    if not path.is_absolute():
        raise InputError(text.strip(), "is not an absolute path, such as ~/models/network.onnx")
    return read_bytes(path), path.name


def _without_weights(file: FileIO, size: int, name: str) -> bytes:
    from tessel_core.formats.onnx.skeleton import OnDisk, skeleton_of

    try:
        return skeleton_of(OnDisk(file, size))
    except InputError as error:
        raise error.within(name) from None


def read_known(data: bytes, name: str) -> Known:
    """Read a document of any known kind: JSON, ONNX or CSV.  Errors begin with `name`."""
    if is_onnx(data, name):
        return OnnxModel.of(data, name)
    if looks_like_pytorch_csv(data, name):
        return read_pytorch_csv(data, name)
    return read_with(_read_known, data, name)


def read_any(path: Path, name: str = "") -> Known:
    """Read a file of any known kind.  Errors begin with `name`, or with the path."""
    return read_known(read_bytes(path), name or str(path))


def read_text(data: bytes, name: str) -> Contents:
    """Read a plan, a schedule, the schedule of a measured run, or a workspace.

    Raises InputError for any other document.
    """
    return contents_of(read_known(data, name), name)


def contents_of(contents: Known, name: str) -> Contents:
    """Return the plan, schedule or workspace in the contents of a file.  Raises InputError like `read_text`."""
    if isinstance(contents, Contents):
        return contents
    if isinstance(contents, RunFile):
        return contents.schedule
    if isinstance(contents, PyTorchCsv | PipelineTrace):
        try:
            return foreign_schedule([contents])
        except InputError as error:
            raise error.within(name) from None
    raise refused(contents, name, "a plan or a schedule")


def foreign_schedule(contents: Sequence[PyTorchCsv | PipelineTrace]) -> ScheduleFile:
    """Convert a PyTorch CSV, or the traces of all ranks, to a schedule; `reading_of` describes the conversion.

    Raises InputError if they contain no whole schedule.
    """
    traces = [each for each in contents if isinstance(each, PipelineTrace)]
    if traces:
        return ScheduleFile(trace_schedule(traces), "pytorch-trace", None)
    (csv,) = (each for each in contents if isinstance(each, PyTorchCsv))
    return ScheduleFile(csv_schedule(csv), "pytorch-csv", None)


def reading_of(contents: PyTorchCsv | PipelineTrace) -> str:
    """Return a sentence on the durations and starts of a converted schedule, and on what was left out."""
    if isinstance(contents, PipelineTrace):
        return MEASURED
    return (
        f"{ASSUMED}; the order of computing is kept, sends and receives are not" if contents.communicates else ASSUMED
    )


def read_file(path: Path, name: str = "") -> Contents:
    """Read a file like `read_text`.  Errors begin with `name`, or with the path."""
    return read_text(read_bytes(path), name or str(path))


def read_mesh_file(path: Path) -> MeshFile:
    """Read a device mesh.  Raises InputError if the file contains anything else."""
    contents = read_any(path)
    if isinstance(contents, MeshFile):
        return contents
    raise refused(contents, str(path), "a device mesh")


def refused(contents: Known, name: str, wanted: str) -> InputError:
    """Return the error for a file of another kind than `wanted`."""
    return InputError(name, f"is {a_kind(contents)}, but {wanted} is needed")


def a_kind(contents: Known) -> str:
    """Return the kind of file with its article: "a plan", "an operator graph"."""
    return _KINDS[type(contents)]


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


def check_place(path: Path | None, source: Path | None = None) -> None:
    """Raise InputError if `path` cannot be written, before any work is done for its contents. None writes no file.

    `path` must not be `source`, the file that is read, also not under another name, so that input is not overwritten.
    """
    if path is None:
        return
    if path.is_dir():
        raise InputError(str(path), "is a folder, not a file")
    if source is not None and path.exists() and source.exists() and path.samefile(source):
        raise InputError(str(path), "is the input file and would be overwritten; choose another name")
    if not _is_device(path) and not os.access(Path(os.path.realpath(path)).parent, os.W_OK | os.X_OK):
        raise InputError(str(path), "cannot be written: its folder is missing or not writable")


def write_file(path: Path, content: str | bytes) -> None:
    """Write a temporary file and rename it, so that `path` holds either the old or the whole new file.

    Text is encoded as UTF-8.  Links stay links.  Devices and pipes, such as /dev/stdout, are opened and written instead
    of being replaced.

    Raises InputError if the file cannot be written.  No temporary file remains.
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
    """Return whether the path exists and is neither a regular file nor a folder, such as a device or a pipe."""
    return path.exists() and not path.is_file() and not path.is_dir()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

"""The file formats for schedules. The command line, the pages and the tests use this table."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tessel_core.errors import InputError
from tessel_core.exports.chrome_trace import chrome_trace, too_long_for_a_trace
from tessel_core.exports.megatron import megatron_arguments, objection_of_megatron
from tessel_core.exports.pytorch_csv import PYTORCH_CSV, objection_of_pytorch, pytorch_csv
from tessel_core.extensions import Extended
from tessel_core.formats import schedule_text
from tessel_core.formats.tessel_json import tessel_json_text, unsaid_block
from tessel_core.model import MemoryProfile, Schedule, ScheduleReport

COLUMNS = ("device", "block", "kind", "micro_batch", "start", "end", "phase", "memory_after")


def schedule_csv(schedule: Schedule) -> str:
    """Return a CSV file with one line per run and device, ordered by device and start. Times have the unit of the plan.

    `memory_after` is the memory of the device after the run has ended, including static memory.
    """
    plan, profile = schedule.plan, MemoryProfile.of(schedule)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    for d, device in enumerate(plan.devices):
        rows = schedule.runs_on(d)
        for row, after in zip(rows.tolist(), profile.after_runs(schedule, d).tolist(), strict=True):
            block = plan.blocks[schedule.block[row]]
            when = (schedule.micro_batch[row], schedule.start[row], schedule.end[row])
            writer.writerow((device.name, block.name, block.kind, *when, schedule.phase[row], after))
    return text.getvalue()


@dataclass(frozen=True, slots=True)
class Export:
    """A file format of a table of exports.

    `objection` returns why the file cannot be made, in one sentence without a full stop, or an empty text. `write` is
    called only for a valid object without an objection.
    """

    name: str
    title: str
    about: str
    """What the format is for, in a few words."""
    suffix: str
    media_type: str
    write: Callable[..., bytes]
    """Returns the bytes of the file.

    The arguments are the object, such as a schedule, and facts about it, such as its report.
    """
    objection: Callable[[Any], str] = lambda subject: ""

    @property
    def is_text(self) -> bool:
        """Whether the format is text. Only PNG is not."""
        return self.media_type != "image/png"

    def made(self, subject: object, *about: object) -> bytes:
        """Return the file of an object. Raises InputError with the objection if it cannot be made."""
        objection = self.objection(subject)
        if objection:
            raise InputError(f"export {self.name}", objection)
        return self.write(subject, *about)


def _unsupported_block(schedule: Schedule) -> str:
    unsaid = unsaid_block(schedule.plan)
    return f"supports only forward and backward blocks, but block {unsaid.name} is {unsaid.kind}" if unsaid else ""


# Plotly loads slowly, so modules that use it are imported only when they are needed.


def _report_page(schedule: Schedule, report: ScheduleReport) -> bytes:
    from tessel_core.exports.html_report import html_report

    return html_report(schedule, report).encode()


def _picture(kind: str) -> Callable[[Schedule, ScheduleReport], bytes]:
    def draw(schedule: Schedule, report: ScheduleReport) -> bytes:
        from tessel_core.exports.pictures import picture

        return picture(schedule, report, kind)

    return draw


def _no_pictures(schedule: Schedule) -> str:
    from tessel_core.exports.pictures import why_no_pictures

    return why_no_pictures()


_OWN: dict[str, Export] = {
    export.name: export
    for export in (
        Export(
            "tessel-schedule",
            "Schedule JSON",
            "to open the schedule again and check it",
            ".schedule.json",
            "application/json",
            lambda schedule, report: schedule_text(schedule, report).encode(),
        ),
        Export(
            "html",
            "HTML report",
            "one page with pictures, tables and bounds that opens in any browser, offline",
            ".html",
            "text/html",
            _report_page,
        ),
        Export(
            "chrome-trace",
            "Chrome trace",
            "for ui.perfetto.dev and chrome://tracing",
            ".trace.json",
            "application/json",
            chrome_trace,
            too_long_for_a_trace,
        ),
        Export(
            "csv",
            "CSV",
            "one line per run and device, for spreadsheets",
            ".csv",
            "text/csv",
            lambda schedule, report: schedule_csv(schedule).encode(),
        ),
        Export(
            "tessel",
            "Tessel JSON",
            "the format of the published Tessel code",
            ".tessel.json",
            "application/json",
            lambda schedule, report: tessel_json_text(schedule).encode(),
            _unsupported_block,
        ),
        Export(
            PYTORCH_CSV,
            "PyTorch CSV",
            "for torch.distributed.pipelining and torchtitan",
            ".pytorch.csv",
            "text/csv",
            lambda schedule, report: pytorch_csv(schedule).encode(),
            objection_of_pytorch,
        ),
        Export(
            "megatron",
            "Megatron arguments",
            "the layers of each stage, for Megatron-LM, which keeps its own order",
            ".megatron.txt",
            "text/plain",
            lambda schedule, report: megatron_arguments(schedule).encode(),
            objection_of_megatron,
        ),
        Export("png", "PNG picture", "for slides", ".png", "image/png", _picture("png"), _no_pictures),
        Export("svg", "SVG picture", "for papers", ".svg", "image/svg+xml", _picture("svg"), _no_pictures),
    )
}

EXPORTS = Extended("tessel.exports", "export", Export, _OWN)
"""File formats by name, in the order of menus. Formats of other packages come last."""

find_export = EXPORTS.find


def export_for(file_name: str) -> Export:
    """Return the format whose suffix matches a file name. If several match, return the one with the longest suffix.

    >>> export_for("mine.trace.json").name, export_for("mine.PNG").name
    ('chrome-trace', 'png')
    >>> export_for("mine.csv").name, export_for("mine.pytorch.csv").name
    ('csv', 'pytorch-csv')

    Raises InputError if no suffix matches.
    """
    fitting = [export for export in EXPORTS.values() if file_name.lower().endswith(export.suffix)]
    if fitting:
        return max(fitting, key=lambda export: len(export.suffix))
    known = ", ".join(f"{export.suffix} ({export.name})" for export in EXPORTS.values())
    raise InputError(file_name, f"has no known suffix; give --to, or a name that ends in {known}")


def export_schedule(name: str, schedule: Schedule, report: ScheduleReport) -> bytes:
    """Return a valid schedule as a file in the format `name`.

    Raises InputError for an unknown format, and if the file cannot be made.
    """
    return find_export(name).made(schedule, report)

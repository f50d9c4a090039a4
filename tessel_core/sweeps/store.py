"""Results of one sweep in an SQLite file. Each result is on disk as soon as it is stored."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from operator import attrgetter
from pathlib import Path
from typing import Any, Self, get_args, get_type_hints

from tessel_core.errors import InputError
from tessel_core.sweeps.solving import PointResult, PointStatus
from tessel_core.sweeps.sweep import SolverSweep, SweepPoint
from tessel_core.workbench.store.database import Schema, open_on_disk


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow(PointResult):
    """A point and its result as one flat row, for the file of results and for the table in the app."""

    key: str
    number: int
    """Position in the sweep, counted from 0."""
    graph: str
    mesh: str
    memory: int | None
    placer: str
    micro_batch_size: int
    in_flight: str
    scheduler: str
    micro_batches: int

    @classmethod
    def joined(cls, number: int, point: SweepPoint, result: PointResult) -> Self:
        """Return one row with the fields of a point and of its result."""
        return cls(
            key=point.key,
            number=number,
            graph=point.graph.graph.name,
            mesh=point.mesh.mesh.name,
            memory=point.memory,
            placer=point.placer,
            micro_batch_size=point.micro_batch_size,
            in_flight=str(point.in_flight),
            scheduler=point.scheduler,
            micro_batches=point.micro_batches,
            **asdict(result),
        )


_OF_RESULT = tuple(each.name for each in fields(PointResult))
COLUMNS = (*(each.name for each in fields(SweepRow) if each.name not in _OF_RESULT), *_OF_RESULT)
"""Columns of the table `point` and of the CSV file: the fields of the point, then those of its result."""
_values = attrgetter(*COLUMNS)

_TYPES = {int: "INTEGER", float: "REAL"}


def _column_definitions() -> str:
    """Return the SQL columns of the table `point`. Their types follow from the fields of `SweepRow`."""
    hints = get_type_hints(SweepRow)
    within = {name: (hints[name], *get_args(hints[name])) for name in COLUMNS}
    kinds = {name: next((sql for kind, sql in _TYPES.items() if kind in within[name]), "TEXT") for name in COLUMNS}
    return ", ".join(f"{name} {kind}{' PRIMARY KEY' if name == 'key' else ''}" for name, kind in kinds.items())


_SCHEMA = Schema(
    int.from_bytes(b"TSWP", "big"),
    3,
    f"CREATE TABLE sweep (key TEXT PRIMARY KEY, title TEXT NOT NULL, size INTEGER NOT NULL);"
    f"CREATE TABLE point ({_column_definitions()})",
)


class SweepStore(AbstractContextManager["SweepStore"]):
    """The file of one sweep. Every method may raise StoreError. Results that were stored before remain.

    Two processes may work on the same sweep. If both solve a point, the first result is kept.

    Opening a file raises StoreError if it belongs to another program, is damaged or read-only. It raises InputError if
    the file holds another sweep.
    """

    def __init__(self, path: Path, sweep: SolverSweep) -> None:
        self.path = path
        self._database = open_on_disk(path, _SCHEMA)
        try:
            self._claim(sweep)
        except InputError:
            self._database.close()
            raise

    def _claim(self, sweep: SolverSweep) -> None:
        with self._database.writing() as connection:
            connection.execute(
                "INSERT INTO sweep SELECT ?, ?, ? WHERE NOT EXISTS (SELECT 1 FROM sweep)",
                (sweep.key, sweep.title, sweep.size),
            )
            key, title = connection.execute("SELECT key, title FROM sweep").fetchone()
        if key != sweep.key:
            raise InputError(str(self.path), f"holds another sweep ({title}); choose another name")

    def keep(self, rows: Iterable[SweepRow]) -> None:
        """Store rows. They are on disk when this method returns."""
        places = ", ".join("?" * len(COLUMNS))
        with self._database.writing() as connection:
            connection.executemany(f"INSERT OR IGNORE INTO point VALUES ({places})", map(_values, rows))

    def forget_failed(self) -> None:
        """Delete the results of failed points, so that these points are solved again."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM point WHERE status = ?", (PointStatus.FAILED,))

    def done(self) -> frozenset[str]:
        """Return the keys of points that have a result."""
        with self._database.reading() as connection:
            return frozenset(key for (key,) in connection.execute("SELECT key FROM point"))

    def rows(self) -> tuple[SweepRow, ...]:
        """Return all results in the order of the sweep."""
        with self._database.reading() as connection:
            rows = connection.execute("SELECT * FROM point ORDER BY number").fetchall()
        return tuple(map(_row, rows))

    def close(self) -> None:
        self._database.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _row(values: tuple[Any, ...]) -> SweepRow:
    known = dict(zip(COLUMNS, values, strict=True))
    return SweepRow(**{**known, "status": PointStatus(known["status"])})


def rows_csv(rows: Iterable[SweepRow]) -> str:
    """Return the rows as CSV with a header line. Missing values are empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows(map(_values, rows))
    return text.getvalue()

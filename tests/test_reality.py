"""docs/reality.md follows from the measurements beside it, and the simulator is as close as required."""

from __future__ import annotations

import pytest

from tools.measure_reality import DATA, PARAMETERS, REPORT
from tools.reality_fitting import read_calibrations, unseen_cases
from tools.reality_measuring import read_measurements
from tools.reality_report import Agreement, compared, report_text, times


def test_the_report_says_what_follows_from_the_measurements() -> None:
    assert report_text(read_measurements(DATA), read_calibrations(PARAMETERS)) == REPORT.read_text(encoding="utf-8")


def test_the_simulator_is_near_what_it_did_not_see() -> None:
    measured = read_measurements(DATA).rows
    assert len(measured) >= 40
    unseen = unseen_cases(measured, seed=0)
    assert len(unseen) * 2 == len(measured)
    held_out = [row for row in measured if row.case in unseen]
    rows = compared(held_out, read_calibrations(PARAMETERS).splits[0], unseen)
    assert {(row.case.family_name, row.processes) for row in rows} == {(n, p) for n in ("mlp", "gpt") for p in (1, 2)}
    assert times(rows).median <= 0.15
    assert times(rows).rank_correlation >= 0.95


def test_agreement_of_a_few_pairs() -> None:
    """Ranks 1.5, 1.5, 3, 4 and 1, 2, 4, 3 have Pearson's correlation 3.5 / sqrt(4.5 x 5)."""
    found = Agreement.of([1.0, 1.0, 3.0, 5.0], [1.0, 2.0, 4.0, 2.5])
    assert found.rows == 4
    assert (found.median, found.largest) == (0.375, 1.0)
    assert found.rank_correlation == pytest.approx(3.5 / (4.5 * 5) ** 0.5)

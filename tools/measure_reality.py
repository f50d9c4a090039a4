"""Run strategies, simulate them, and report the differences: python tools/measure_reality.py [MINUTES].

This writes `docs/reality_fit.json` and `docs/reality.md` from `docs/reality.json`. With a number of minutes, it first
measures the strategies anew. That needs PyTorch and a machine that is quiet for part of that time.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # Tools are not an installed package, so add their folder to the path.

from tessel_core.formats import write_file  # noqa: E402
from tools.reality_cases import all_cases  # noqa: E402
from tools.reality_fitting import calibrate, calibrations_text  # noqa: E402
from tools.reality_measuring import measure, measurements_text, read_measurements  # noqa: E402
from tools.reality_report import report_text  # noqa: E402

DOCS = ROOT / "docs"
DATA, PARAMETERS, REPORT = DOCS / "reality.json", DOCS / "reality_fit.json", DOCS / "reality.md"


def main() -> None:
    if len(sys.argv) > 1:
        for found in measure(list(all_cases()), 60 * float(sys.argv[1]), lambda text: print(text, flush=True)):
            write_file(DATA, measurements_text(found))
    measured = read_measurements(DATA)
    calibrations = calibrate(measured.rows)
    write_file(PARAMETERS, calibrations_text(calibrations))
    write_file(REPORT, report_text(measured, calibrations))


if __name__ == "__main__":
    main()

"""Fit the cost model to the measured rows and write the report: python tools/fit_costs.py.

This writes the parameters of each kind to `tessel_core/costs/data/*_fit.json`, and `docs/cost_model.md`. Equal rows
give equal parameters.
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # Tools are not an installed package, so add their folder to the path.

from tessel_core.costs.fit import kind_fit  # noqa: E402
from tessel_core.formats import write_file  # noqa: E402
from tools.cost_fitting import fit_all  # noqa: E402
from tools.cost_report import report_text  # noqa: E402
from tools.kernel_work import fit_text  # noqa: E402
from tools.measured_rows import KINDS, fit_kind  # noqa: E402

PARAMETERS = ROOT / "tessel_core" / "costs" / "data" / "h200_fit.json"
REPORT = ROOT / "docs" / "cost_model.md"


def main() -> None:
    fit = fit_all()
    write_file(PARAMETERS, fit_text(fit))
    kind_fit.cache_clear()
    for kind in KINDS:
        write_file(PARAMETERS.with_name(f"{kind}_fit.json"), fit_text(fit_kind(kind)))
    write_file(REPORT, report_text(fit))


if __name__ == "__main__":
    main()

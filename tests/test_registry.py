"""The tables of schedulers and placers: names lead to entries with that name, loaded when looked up."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tessel_core.errors import InputError
from tessel_core.placement import PLACERS
from tessel_core.registry import Registry
from tessel_core.scheduling import SCHEDULERS


@pytest.mark.parametrize("table", [SCHEDULERS, PLACERS], ids=["schedulers", "placers"])
def test_every_name_leads_to_its_entry(table: Registry[Any]) -> None:
    assert [entry.name for entry in table.values()] == list(table)


def test_an_unknown_name_is_told_with_those_that_are_known() -> None:
    with pytest.raises(InputError, match=r"^scheduler: 'magic' is not known, choose from tessel, .*, sequential$"):
        SCHEDULERS.find("magic")


def test_names_load_no_search() -> None:
    script = "import sys; from tessel_core.scheduling import SCHEDULERS; print(*SCHEDULERS); print(*sys.modules)"
    names, modules = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert names.split() == list(SCHEDULERS)
    assert "tessel_core.scheduling.tessel" not in modules.split()

"""Entries of other packages appear in the app's forms."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers.packages import as_in_a_new_process, install_example

from tessel_core.exports import EXPORTS
from tessel_core.scheduling import SCHEDULERS


def test_the_schedule_page_offers_asks_and_exports_with_them(
    app, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_example(tmp_path)
    for table in (SCHEDULERS, EXPORTS):
        as_in_a_new_process(monkeypatch, table, tmp_path)
    page = app("schedule", sample="v-shape-4", n="4")
    page.choose("Scheduler", "longest-queue")
    assert "Late blocks first" in [box.label for box in page.test.checkbox]
    page.search()
    assert "Markdown table" in page.files()
    assert page.work.scheduler == "longest-queue"

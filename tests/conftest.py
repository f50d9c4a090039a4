"""Options of the test run, and a data folder of its own for every test: nobody's saved work is ever touched."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-goldens",
        action="store_true",
        help="Write the grids in tests/goldens anew; look at the difference before you commit it.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Before anything is imported, for servers and other processes that tests start as well."""
    os.environ["TESSEL_DATA"] = tempfile.mkdtemp(prefix="tessel-tests-")


def pytest_unconfigure(config: pytest.Config) -> None:
    shutil.rmtree(os.environ["TESSEL_DATA"], ignore_errors=True)


@pytest.fixture(autouse=True)
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's store lies."""
    folder = tmp_path / "tessel-data"
    monkeypatch.setenv("TESSEL_DATA", str(folder))
    return folder

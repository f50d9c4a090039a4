"""Options of the test run. Each test gets its own data folder, so no test touches saved work of the user."""

from __future__ import annotations

import gc
import logging
import os
import sys
import tempfile
from collections.abc import Callable
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any

import hypothesis
import pytest

hypothesis.settings.register_profile("any machine", deadline=None)  # a busy one takes longer
hypothesis.settings.load_profile("any machine")

_OF_THE_RUN = tempfile.TemporaryDirectory(prefix="tessel-tests-", ignore_cleanup_errors=True)


def _that_begin_with_torch() -> list[str]:
    root = Path(__file__).resolve().parents[1]
    found = [*root.glob("tessel_core/execution/*.py"), *root.glob("tests/helpers/*.py")]
    begin = [each for each in found if "\nimport torch\n" in each.read_text(encoding="utf-8")]
    return [*(f"*/{each.parent.name}/{each.name}" for each in begin), "*/execution/torch_operators"]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--write-goldens",
        action="store_true",
        help="Write the grids in tests/goldens anew; look at the difference before you commit it.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Set the environment before any import, so that servers and processes started by tests inherit it."""
    os.environ["TESSEL_DATA"] = _OF_THE_RUN.name
    if find_spec("torch") is None:  # pytest looks for examples in all modules, and these start with the option
        config.option.ignore_glob = [*(config.option.ignore_glob or ()), *_that_begin_with_torch()]
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "WorkerInteractor" and config.option.durations is None:
            plugin.sendevent = partial(_send_what_counts, plugin.sendevent)
    gc.disable()


def _send_what_counts(send: Callable[..., None], name: str, **event: Any) -> None:
    """Send only the messages that pytest-xdist's main process uses: two of six per test."""
    report = event.get("data", {})
    passed = report.get("outcome") == "passed" and report.get("when") in ("setup", "teardown")
    if name not in ("logstart", "logfinish") and not passed:
        send(name, **event)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is collected stays to the end, so no search for garbage has to look at it, nor to begin before.

    Plotly parses the same few paths ("legend.font", …) anew for every property it sets, which is half of a figure.
    """
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(100_000)
    # Three times per test, pytest adds its handlers to every logger that does not propagate. Streamlit has sixty.
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.propagate = True
    plotly = sys.modules.get("plotly.basedatatypes")
    if plotly is not None:
        vars(plotly)["_str_to_dict_path_full"] = lru_cache(maxsize=None)(vars(plotly)["_str_to_dict_path_full"])


def pytest_unconfigure(config: pytest.Config) -> None:
    _OF_THE_RUN.cleanup()


_NUMBERS = count()


@pytest.fixture(autouse=True)
def data_folder() -> Path:
    """Return the folder of this test's store. It is empty until something is saved."""
    folder = Path(_OF_THE_RUN.name, str(next(_NUMBERS)))
    os.environ["TESSEL_DATA"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def torch_is_there() -> None:
    """Skip the test with a reason if PyTorch is missing. Fail instead if the environment requires PyTorch."""
    from tessel_core.torch_extra import why_no_torch

    missing = why_no_torch()
    if missing and os.environ.get("TESSEL_REQUIRE_EXTRAS") != "1":
        pytest.skip(f"{missing}; TESSEL_REQUIRE_EXTRAS=1 makes this a failure")
    assert not missing

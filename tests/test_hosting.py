"""Limits that only a hosted app has, because it is open to strangers."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.stores import PLAN, state

from tessel_core import hosting
from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.options import OptionError, config_from, options_of
from tessel_core.placement import PLACERS
from tessel_core.scheduling import SCHEDULERS
from tessel_core.scheduling.schedulers import check_micro_batches
from tessel_core.scheduling.tessel import TesselConfig
from tessel_core.workbench import jobs
from tessel_core.workbench.store import open_store, workspaces


@pytest.fixture
def hosted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESSEL_HOSTED", "1")


def until_stopped(control: Control) -> str:
    while not control.stopped:
        time.sleep(0.01)
    return "best so far"


@pytest.mark.usefixtures("hosted")
def test_nobody_gets_more_time_or_threads_than_usual() -> None:
    with pytest.raises(OptionError, match=r"Time limit: must be between 0\.1 and 20, got 600"):
        config_from(TesselConfig, {"time_limit": 600})
    with pytest.raises(OptionError, match="Workers: must be between 1 and 2, got 64"):
        config_from(TesselConfig, {"workers": 64})


@pytest.mark.usefixtures("hosted")
@pytest.mark.parametrize("config", [each.config for table in (SCHEDULERS, PLACERS) for each in table.values()])
def test_the_usual_options_are_within_the_limits_of_a_hosted_server(config: type) -> None:
    for shown, value in options_of(config).values():
        assert shown.choices or isinstance(value, bool) or shown.low <= value <= shown.high


def test_at_home_people_decide_themselves() -> None:
    assert config_from(TesselConfig, {"time_limit": 600, "workers": 64}).workers == 64


@pytest.mark.usefixtures("hosted")
def test_a_schedule_is_of_moderate_size() -> None:
    check_micro_batches(PLAN, hosting.MAX_SCHEDULE_RUNS // len(PLAN.blocks))
    with pytest.raises(InputError, match="more than the 100,000 that a schedule may have"):
        check_micro_batches(PLAN, hosting.MAX_SCHEDULE_RUNS // len(PLAN.blocks) + 1)


@pytest.mark.usefixtures("hosted")
def test_a_run_ends_in_time_with_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "MAX_JOB_SECONDS", 0.05)
    run = jobs.Jobs().submit("endless", until_stopped)
    assert run.wait(5)
    assert run.result == "best so far"


def test_a_run_ends_when_its_watcher_wants_another() -> None:
    run = jobs.Jobs(patience_s=0.1).submit("endless", until_stopped)
    watchers: list[Callable[[], bool]] = [lambda: True, lambda: True]
    for each in watchers:
        run.watch(each)
    run.leave(watchers[0])
    assert not run.wait(0.3), "the other watcher is still there"
    run.leave(watchers[1])
    assert run.wait(5)


@pytest.mark.usefixtures("hosted")
def test_the_oldest_workspaces_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspaces, "MAX_WORKSPACES", 2)
    shelf = open_store(tmp_path).workspaces
    tokens = [shelf.create(state(number, f"work {number}")).token for number in (1, 2, 3)]
    assert [each.token for each in shelf.all()] == [tokens[2], tokens[1]]

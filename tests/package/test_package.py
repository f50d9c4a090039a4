"""The wheel as `make test-package` installs it: in an environment of its own, away from the checkout."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from helpers.app_server import CHROMIUM, QUIET

if "TESSEL_PACKAGED" not in os.environ:
    pytest.skip("no package is installed: make test-package", allow_module_level=True)
PACKAGED = Path(os.environ["TESSEL_PACKAGED"])
"""A folder that holds the wheel and the environment that it is installed in."""
TESSEL, PYTHON = PACKAGED / "environment" / "bin" / "tessel", PACKAGED / "environment" / "bin" / "python"
BOUND = ["setpriv", "--bounding-set=-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
"""Before a command: root, too, may write only where the modes say so."""


@pytest.fixture
def anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to work in, and nothing in the environment that leads to the checkout."""
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")  # what is aborted says where
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*command: object, **named: object) -> str:
    ended = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False, **named)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_wheel_holds_one_package_and_nothing_else() -> None:
    (wheel,) = PACKAGED.glob("tessel_explorer-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"tessel_core"}
    inside = {name.removeprefix("tessel_core/installed/") for name in names if "/installed/" in name}
    assert {"app.py", "pages/schedule.py", "sample_models/v-shape-4.json", ".streamlit/config.toml"} <= inside
    assert {"pages/shared/timeline/timeline.mjs", "pages/shared/timeline/timeline.css"} <= inside


def test_samples_are_known_by_name_anywhere(anywhere: Path) -> None:
    assert "m-shape-4" in run(TESSEL, "samples")
    report = json.loads(run(TESSEL, "schedule", "m-shape-4", "--json", "--out", "found.json"))
    assert (report["status"], report["makespan"]) == ("PROVED_OPTIMAL", 204)
    assert run(TESSEL, "check", "found.json") == "found.json: valid\n"
    assert "m-shape-4" in run(PYTHON, "-m", "tessel_core", "samples")
    assert Path(run(PYTHON, "-c", "import tessel_core; print(tessel_core.__file__)")).is_relative_to(PACKAGED)


def test_a_package_that_is_installed_beside_it_extends_it(anywhere: Path) -> None:
    command = [TESSEL, "schedule", "v-shape-4", "--scheduler", "longest-queue", "--memory", "64", "--json"]
    assert json.loads(run(*command))["makespan"] >= 136
    assert "bottleneck-24" in run(TESSEL, "graph")


def test_what_the_first_search_began_to_compile_is_there_for_a_later_one(anywhere: Path) -> None:
    """A period that needs the compiled kernels is proved after some minutes at most, whichever command began."""
    until, note = time.monotonic() + 300, "note: the search kernels "
    while True:
        command = [TESSEL, "schedule", "v-shape-4", "--memory", "3", "--json"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stderr
        if not ended.stderr:
            break
        assert ended.stderr.startswith(note)
        assert time.monotonic() < until, "nothing goes on compiling"
        time.sleep(3)
    report = json.loads(ended.stdout)
    assert report["bound_per_micro_batch"] == report["period_per_micro_batch"] == pytest.approx(16 / 3)


def test_an_extra_that_is_absent_is_one_sentence(anywhere: Path) -> None:
    run(TESSEL, "schedule", "m-shape-4", "--out", "found.json")
    command = [TESSEL, "export", "found.json", "--out", "x.png"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert "tessel-explorer[pictures]" in ended.stderr
    assert ended.stderr.count("\n") == 1


@contextmanager
def app(environment: Mapping[str, str], before: Sequence[str] = ()) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [*before, TESSEL, "app", "--headless", "--port", str(port)]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as server:
        try:
            until = time.monotonic() + 60
            while not healthy(url):
                assert server.poll() is None, server.stderr.read()
                assert time.monotonic() < until, "the app did not start"
                time.sleep(0.2)
            yield url
        finally:
            server.terminate()


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/_stcore/health", timeout=1) as answer:
            return answer.status == 200
    except (urllib.error.URLError, TimeoutError):
        return False


def look(url: str) -> str:
    """Opens the first page; the colour of its main button, once it has drawn the schedule."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        tab = chromium.new_page()
        tab.set_default_timeout(60_000)
        tab.goto(url)
        button = tab.get_by_test_id("stBaseButton-primary").first
        button.wait_for()
        tab.locator(".timeline[data-painted] canvas.over").first.wait_for()
        assert not tab.get_by_test_id("stException").count()
        colour = button.evaluate("button => getComputedStyle(button).backgroundColor")
        chromium.close()
    return str(colour)


def test_the_app_has_its_own_settings(anywhere: Path) -> None:
    """Streamlit reads them beside the script; without them it would be red, and tell its makers about its use."""
    with app({**os.environ, "TESSEL_DATA": str(anywhere)}) as url:
        assert look(url) == "rgb(0, 99, 156)"


@pytest.fixture
def nothing_writable(anywhere: Path) -> Iterator[dict[str, str]]:
    """Neither the package nor a home."""
    home = anywhere / "home"
    home.mkdir()
    run("chmod", "-R", "a-w", PACKAGED / "environment", home)
    yield {"PATH": os.environ["PATH"], "HOME": str(home)}
    run("chmod", "-R", "u+w", PACKAGED / "environment", home)


def test_it_works_where_nothing_can_be_written(nothing_writable: dict[str, str]) -> None:
    forbidden = [*BOUND, "touch", PACKAGED / "environment" / "lib" / "here"]
    assert subprocess.run(forbidden, capture_output=True, check=False).returncode == 1
    with app(nothing_writable, BOUND) as url:
        assert look(url) == "rgb(0, 99, 156)"
    report = json.loads(run(*BOUND, TESSEL, "schedule", "m-shape-4", "--json", env=nothing_writable))
    assert report["status"] == "PROVED_OPTIMAL"

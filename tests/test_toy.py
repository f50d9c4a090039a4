"""A strategy as a toy for PyTorch alone: it trains to the losses and weights of one process."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.terminal import Tessel, terminal

from tessel_core.exports.launch import LAUNCHERS, Job
from tessel_core.exports.toy import toy_left_out, toy_objection, toy_script
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.strategies.naming import preset_network
from tessel_core.strategies.strategy import Strategy


@pytest.fixture
def tessel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Tessel:
    """Return a function that runs a command."""
    monkeypatch.chdir(tmp_path)
    return terminal(monkeypatch, capsys)


CASES = {
    "every degree": (Strategy(2, 2, 2, 8, "1f1b", zero=1, layout=(3, 1)), (3, 1)),
    "replicas": (Strategy(4, 1, 1, 2, zero=3), (2,)),
    "interleaved": (Strategy(1, 1, 2, 4, "interleaved", stages_per_device=2), (1, 2, 1, 1)),
    "split backward": (Strategy(1, 2, 2, 4, "zb-h1"), (1, 1)),
    "deep": (Strategy(1, 1, 2, 4, "1f1b", layout=(41, 39)), (41, 39)),
    "v": (Strategy(2, 1, 2, 4, "zb-v", stages_per_device=2), (1, 1, 1, 1)),
}


def ran(path: Path) -> subprocess.CompletedProcess[str]:
    """Run the script as a user does."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, path.name]
    return subprocess.run(
        command, cwd=path.parent, env=environment, capture_output=True, text=True, timeout=240, check=False
    )


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_toy_agrees_with_one_process(case: tuple[Strategy, tuple[int, ...]], tmp_path: Path) -> None:
    strategy, layers = case
    path = tmp_path / "toy.py"
    path.write_text(toy_script("a network", strategy, layers))
    ended = ran(path)
    assert ended.returncode == 0, ended.stderr
    *ranks, verdict = sorted(ended.stdout.splitlines(), key=lambda line: line.startswith("all ranks agree"))
    assert verdict.startswith("all ranks agree with one process, whose losses are ")
    assert len(ranks) == strategy.devices
    first, *_, last = map(float, re.findall(r"\d+\.\d{6}", verdict))
    assert last < first, "it learns"
    assert sum("no losses" not in line for line in ranks) == strategy.data * strategy.tensor


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_a_toy_that_computes_something_else_fails(tmp_path: Path) -> None:
    text = toy_script("a network", Strategy(2, 1, 1, 2), (1,))
    path = tmp_path / "toy.py"
    path.write_text(text.replace("weight.grad /= DATA", "weight.grad /= DATA + 1"))
    ended = ran(path)
    assert ended.returncode != 0
    assert "ranks differ from one process" in ended.stdout


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_tessel_runs_a_toy(tmp_path: Path) -> None:
    path = tmp_path / "toy.py"
    path.write_text(toy_script("a network", Strategy(1, 1, 2, 2, "gpipe"), (1, 1)))
    command = [sys.executable, "-m", "tessel_core.cli", "run", str(path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert ended.returncode == 0, ended.stderr
    assert "all ranks agree with one process" in ended.stdout
    path.write_text(path.read_text().replace("CLOSE = 1e-9", "CLOSE = -1"))
    assert subprocess.run(command, capture_output=True, timeout=240, check=False).returncode == 1


def constants(text: str) -> dict[str, object]:
    """Return the constants at the top of the script."""
    found: dict[str, object] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign):
            try:
                value = ast.literal_eval(node.value)
            except ValueError:
                continue
            target = node.targets[0]
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value if isinstance(target, ast.Tuple) else [value]
            found |= {name.id: each for name, each in zip(names, values, strict=True) if isinstance(name, ast.Name)}
    return found


def test_a_toy_has_the_degrees_and_the_layers_of_its_strategy() -> None:
    found = preset_network("llama-3.1-70b")
    assert found is not None
    family, said = found
    strategy = Strategy(2, 4, 2, 8, "1f1b", layout=(41, 39), recompute=Recompute.FULL, zero=1)
    written = LAUNCHERS["torch"].write(Job("llama", family, family.spec(**{**said, "batch": 64}), strategy))
    known = constants(written.text)
    assert [known[name] for name in ("DATA", "TENSOR", "PIPELINE", "MICRO_BATCHES")] == [2, 4, 2, 8]
    assert known["LAYERS"] == [41, 39]
    assert str(known["ORDER"]).split()[1].startswith("1F0,1B0,1F1,1B1")
    assert written.left_out == ("PyTorch's toy leaves out ZeRO-1, recomputation, which `tessel run` offers as options",)


def test_a_large_strategy_has_a_smaller_toy_that_says_so() -> None:
    strategy = Strategy(16, 4, 2, 64, "1f1b")
    known = constants(toy_script("a network", strategy, (1, 1)))
    assert (known["DATA"], known["MICRO_BATCHES"]) == (4, 8)
    assert list(toy_left_out(strategy)) == [
        "PyTorch's toy has 4 of the 16 replicas",
        "PyTorch's toy has 8 of the 64 micro-batches",
    ]


def test_a_network_in_two_copies_has_no_toy() -> None:
    assert "two copies" in toy_objection(Strategy(1, 1, 4, 8, "chimera"))
    assert not toy_objection(Strategy(1, 1, 4, 8, "1f1b"))


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("print('hello')", (), "is no script of"),
        ("# Written by `tessel recommend --launch torch`", ("--steps", "3"), "--steps: is for networks"),
        ("# Written by `tessel recommend --launch torch`", ("--json",), "--json: is for networks"),
    ],
)
def test_other_scripts_and_options_are_refused(
    tessel: Tessel, tmp_path: Path, text: str, options: tuple[str, ...], why: str
) -> None:
    (tmp_path / "mine.py").write_text(text)
    code, _, error = tessel("run", "mine.py", *options)
    assert (code, why in error) == (2, True), error

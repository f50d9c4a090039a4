"""With PyTorch: its pipelining runtime runs our exports, and we read its profiler's traces."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.torch_pipelines import every_export, random_chain, run_on_torch

from tessel_core.exports import EXPORTS
from tessel_core.exports.pytorch_csv import torchrun_script
from tessel_core.formats.files import foreign_schedule, read_any
from tessel_core.formats.pytorch_trace import PipelineTrace
from tessel_core.rules import check_schedule

pytestmark = [pytest.mark.extras, pytest.mark.usefixtures("torch_is_there")]


@pytest.mark.parametrize("ranks", [2, 4])
def test_pytorch_s_runtime_makes_the_gradients_of_one_process(ranks: int, tmp_path: Path) -> None:
    schedules = dict(every_export(ranks, 8))
    whole = schedules["zb-v.zb-v"]
    others = np.random.default_rng(7).permutation(8)
    schedules["out-of-order"] = replace(whole, micro_batch=others[whole.micro_batch])
    schedules |= {f"random.{seed}": random_chain(seed, ranks, 8) for seed in range(3)}
    found = run_on_torch(schedules, tmp_path, profile="zb-v.tessel")
    assert max(apart["gradient"] for apart in found.values()) <= 1e-14, found
    assert max(apart["loss"] for apart in found.values()) <= 1e-14, found

    traces = [read_any(tmp_path / f"trace{rank}.json") for rank in range(ranks)]
    measured = foreign_schedule([trace for trace in traces if isinstance(trace, PipelineTrace)]).schedule
    assert not check_schedule(measured)
    assert EXPORTS["pytorch-csv"].made(measured, None) == (tmp_path / "zb-v.tessel.csv").read_bytes()
    assert all(100 < block.duration < 10**9 for block in measured.plan.blocks), "between .1 µs and a second"


def test_the_script_runs_as_it_is(tmp_path: Path) -> None:
    schedule = dict(every_export(2, 4))["v-shape.1f1b"]
    (tmp_path / "s.csv").write_bytes(EXPORTS["pytorch-csv"].made(schedule, None))
    (tmp_path / "s.py").write_text(torchrun_script(schedule, "s.csv", "s.py"))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "s.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    how = {"cwd": tmp_path, "capture_output": True, "text": True, "timeout": 120}
    ended = subprocess.run(command, env=environment, check=False, **how)
    assert ended.returncode == 0, ended.stderr
    means = [float(line.split()[4]) for line in ended.stdout.splitlines()]
    assert len(means) == 3
    assert means == sorted(means, reverse=True), "it learns"
    alone = subprocess.run([sys.executable, "s.py"], check=False, **how)
    assert (alone.returncode, alone.stderr.count("\n")) == (1, 1)
    assert alone.stderr.startswith("s.csv is for 2 ranks: torchrun --nproc-per-node 2 ")

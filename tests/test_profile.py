"""A user's modules, measured: bytes are exact, the plan contains them, and a broken file gives one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tessel_core.cli.command import app
from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.execution.profile import ModuleCosts, Profile, profile
from tessel_core.formats import read_plan
from tessel_core.model import BlockKind, DevicePool
from tessel_core.placement import PlacementProblem, solve_placement
from tessel_core.planning import plan_of

MODULES = """
import torch
from torch import nn

def build():
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8), nn.ReLU(inplace=False)]
    return [nn.Embedding(10, 8), *layers], torch.randint(0, 10, (4,))
"""


def measured(*seconds: tuple[float, float, float, float]) -> Profile:
    """Return measured modules with these seconds for the forward, the backward and each gradient."""
    modules = (ModuleCosts(f"module{i}", "Linear", *each, 100, 40, 20) for i, each in enumerate(seconds))
    return Profile("mine", "cpu core", 4, tuple(modules))


@pytest.mark.parametrize(("optimizer", "copies"), [("sgd", 2), ("adam", 4)])
def test_a_profile_becomes_stages_that_hold_what_was_measured(optimizer: str, copies: int) -> None:
    found = measured((1.0, 2.0, 1.25, 1.0), (1.0, 2.0, 1.25, 1.0), (2.0, 4.0, 2.5, 2.0))
    for split in (False, True):
        graph = found.graph(optimizer, split_weights=split)
        report = solve_placement("dp", PlacementProblem.on_pool(graph, DevicePool(2)))
        assert report.solution is not None
        plan = plan_of(report.solution, split_weights=split)
        assert [device.static_memory for device in plan.devices] == [200 * copies, 100 * copies]
        work = {kind: [b.duration for b in plan.blocks if b.kind == kind] for kind in BlockKind}
        assert work[BlockKind.FORWARD] == [2_000_000_000, 2_000_000_000]
        assert sorted(work[BlockKind.BACKWARD]) == ([2_500_000_000] * 2 if split else [4_000_000_000] * 2)
        assert work[BlockKind.WEIGHT] == ([2_000_000_000] * 2 if split else [])
        held = {block.name: block.memory for block in plan.blocks if block.memory > 0}
        assert list(held.values()) == [80, 40]


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_modules_are_measured_and_become_a_plan(tmp_path: Path) -> None:
    file, out = tmp_path / "mine.py", tmp_path / "plan.json"
    file.write_text(MODULES)
    found = profile(f"{file}:build", Control())
    assert [each.kind for each in found.modules] == ["Embedding", "Linear", "Tanh", "Linear", "ReLU"]
    assert [each.weight_bytes for each in found.modules] == [320, (8 * 16 + 16) * 4, 0, (16 * 8 + 8) * 4, 0]
    # Eight-byte indices, the input of a linear layer, the output of tanh (which the next layer takes), and of ReLU.
    assert [each.activation_bytes for each in found.modules] == [4 * 8, 4 * 8 * 4, 4 * 16 * 4, 0, 4 * 8 * 4]
    assert [each.output_bytes for each in found.modules] == [128, 256, 256, 128, 128]
    for each in found.modules:
        assert min(each.forward_s, each.backward_s) > 0
        assert (each.weight_gradient_s > 0) == (each.weight_bytes > 0)
    assert found.modules[0].input_gradient_s == 0
    done = CliRunner().invoke(app, ["profile", f"{file}:build", "--devices", "2", "--out", str(out), "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert len(document["modules"]) == 5
    plan = read_plan(out.read_bytes())
    assert len(plan.devices) == 2
    assert {block.kind for block in plan.blocks} == {BlockKind.FORWARD, BlockKind.BACKWARD}


BROKEN = {
    "raises at once": ("import os\nraise RuntimeError('no data\\nhere')", "raised RuntimeError in line 2: no data"),
    "leaves": ("import sys\nsys.exit(3)", "raised SystemExit in line 2: 3"),
    "is no Python": ("def build(:\n", "raised SyntaxError in line 1: invalid syntax"),
    "lacks the function": ("", "has no function build"),
    "returns nothing": ("def build(): pass", "it returned nothing"),
    "returns no modules": ("import torch\ndef build(): return [1], torch.ones(2)", "its first value is a list"),
    "returns no tensor": ("from torch import nn\ndef build(): return [nn.ReLU()], 3", "its second value is an int"),
    "does not fit": (
        "import torch\nfrom torch import nn\ndef build(): return [nn.ReLU(), nn.Linear(3, 3)], torch.ones(2, 2)",
        "module 1 (Linear): raised RuntimeError: mat1 and mat2 shapes",
    ),
    "is on no device": (
        "import torch\nfrom torch import nn\ndef build(): return [nn.Linear(2, 2, device='meta')], torch.ones(2, 2)",
        "module 0 (Linear): raised NotImplementedError: Cannot copy out of meta tensor",
    ),
    "leaves in a module": (
        "import torch\nfrom torch import nn\nclass Leave(nn.Module):\n    def forward(self, x): raise SystemExit(4)\n"
        "def build(): return [Leave()], torch.ones(2, 2)",
        "module 0 (Leave): raised SystemExit in line 4: 4",
    ),
    "cuts the gradient off": (
        "import torch\nfrom torch import nn\nclass Cut(nn.Module):\n    def forward(self, x): return x.detach()\n"
        "def build(): return [nn.Linear(2, 2), Cut()], torch.ones(2, 2)",
        "module 1 (Cut): returned a tensor that is detached from its input",
    ),
    "ends the process": (
        "import os, torch\nfrom torch import nn\nclass Quits(nn.Module):\n    def forward(self, x): os._exit(3)\n"
        "def build(): return [nn.Linear(2, 2), Quits()], torch.ones(2, 2)",
        "module 1 (Quits): raised SystemExit in line 4: exit code 3 and no message",
    ),
    "has an empty batch": (
        "import torch\nfrom torch import nn\ndef build(): return [nn.ReLU()], torch.ones(0, 2)",
        "its second value is a Tensor of shape (0, 2)",
    ),
    "hands on a pair": (
        "import torch\nfrom torch import nn\ndef build(): return [nn.LSTM(2, 2)], torch.ones(2, 2, 2)",
        "module 0 (LSTM): returned a tuple, but the next module needs a tensor",
    ),
}


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
def test_modules_may_work_in_place_and_share_weights(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import torch\nfrom torch import nn\n"
        "def build():\n"
        "    print('building')\n"
        "    one = nn.Linear(4, 4)\n"
        "    return [one, nn.ReLU(inplace=True), one], torch.ones(3, 4)\n"
    )
    found = profile(f"{file}:build", Control())
    assert [each.weight_bytes for each in found.modules] == [20 * 4, 0, 0], "once, with the first"
    done = CliRunner().invoke(app, ["profile", f"{file}:build", "--json"])
    assert len(json.loads(done.stdout)["modules"]) == 3, "what the file prints does not get into the document"
    assert "building" in done.stderr


@pytest.mark.extras
@pytest.mark.usefixtures("torch_is_there")
@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_cannot_be_measured_is_one_sentence(name: str, tmp_path: Path) -> None:
    text, why = BROKEN[name]
    file = tmp_path / "mine.py"
    file.write_text(text)
    with pytest.raises(InputError) as raised:
        profile(f"{file}:build", Control())
    assert str(raised.value).startswith(str(file))
    assert why in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("target", "why"), [("mine.py", "must be FILE.py:FUNCTION"), ("none.py:build", "is not a file")]
)
def test_what_is_measured_is_named_by_file_and_function(target: str, why: str) -> None:
    done = CliRunner().invoke(app, ["profile", target])
    assert isinstance(done.exception, InputError)
    assert why in str(done.exception)

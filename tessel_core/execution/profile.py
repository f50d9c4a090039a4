"""Measure a user's list of PyTorch modules one by one, and build an operator graph from the result."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.model import DeviceTime, Edge, Operator, OperatorGraph
from tessel_core.networks.pytorch.source import asked_function, call, made_by, no_silent_exit
from tessel_core.torch_extra import need_torch

OPTIMIZERS = {"sgd": 0, "adam": 2}
"""Numbers that each optimizer stores per parameter, besides the parameter and its gradient."""
_WARMUP_RUNS, _MIN_TIMED_RUNS, _MAX_TIMED_RUNS = 3, 5, 200
_TIMING_SECONDS = 0.2
"""Stop timing after this many seconds, once the minimum number of runs is reached."""


@dataclass(frozen=True, slots=True)
class ModuleCosts:
    """Median times of one module in seconds, and its memory in bytes."""

    name: str
    kind: str
    """Class of the module."""
    forward_s: float
    backward_s: float
    """Seconds to compute the gradients of the input and of the weights together."""
    input_gradient_s: float
    weight_gradient_s: float
    weight_bytes: int
    """Bytes of the parameters, without gradients and optimizer state."""
    activation_bytes: int
    """Bytes that autograd saves for the backward pass, without parameters and tensors saved by earlier modules."""
    output_bytes: int


@dataclass(frozen=True, slots=True)
class Profile:
    """Costs of consecutive modules, measured on one kind of device."""

    name: str
    device: str
    batch_size: int
    modules: tuple[ModuleCosts, ...]

    def graph(self, optimizer: str = "adam", *, split_weights: bool = False) -> OperatorGraph:
        """Build a graph with one operator per module and direction.

        With `split_weights`, each weight gradient is an operator of its own.  The bytes of weights include their
        gradients and the state of the optimizer.
        """
        copies, last = 2 + OPTIMIZERS[optimizer], ""
        operators, edges = list[Operator](), list[Edge]()
        for each in self.modules:
            state = copies * each.weight_bytes, each.activation_bytes, each.output_bytes
            operators.append(Operator(each.name, each.kind, self._time(each.forward_s), None, None, *state))
            edges += [Edge(last, each.name, operators[-2].output_bytes)] if last else []
            last = each.name
        for at, each in reversed([*enumerate(self.modules)]):
            handed = self.modules[at - 1].output_bytes if at else 0
            apart = split_weights and each.weight_bytes > 0
            seconds = each.input_gradient_s if apart else each.backward_s
            name = f"{each.name}/gradient"
            back = Operator(
                name, "gradient", self._time(seconds), output_bytes=handed, backward=True, forward_of=each.name
            )
            operators.append(back)
            edges.append(Edge(last, name, each.output_bytes))
            last = name
            if apart:
                rest = Operator(
                    f"{each.name}/weight_gradient",
                    "weight_gradient",
                    self._time(each.weight_gradient_s),
                    backward=True,
                    forward_of=each.name,
                )
                operators.append(rest)
                edges.append(Edge(name, rest.name, handed))
        return OperatorGraph(self.name, tuple(operators), tuple(edges), "s", self.batch_size)

    def _time(self, seconds: float) -> tuple[DeviceTime, ...]:
        return (DeviceTime(self.device, seconds),)


def profile(target: str, control: Control) -> Profile:
    """Call `FILE.py:FUNCTION` and measure the modules that it returns, on the first GPU or on one CPU thread.

    The function returns a list of modules and the input of the first: one micro-batch as a tensor, with samples along
    axis 0. Each module takes the output of the module before it. `control` can stop the measurement between two
    modules. Weights shared by several modules count once, for the first module. A device that runs only a later module
    holds these weights too, so it needs more memory than the profile says.

    Raises InputError if the file or a module cannot be run, or if the function returns other values.
    """
    path, name = asked_function(target)
    need_torch("tessel profile")
    with no_silent_exit():
        return _profile(target, path, name, control)


def _profile(target: str, path: str, name: str, control: Control) -> Profile:
    import torch

    modules, given = _asked(target, path, name)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        measured, kept = list[ModuleCosts](), dict[int, Any]()
        value = given.to(device)
        for at, module in enumerate(modules):
            if control.stopped:
                raise InputError(target, f"was stopped after {at} of {len(modules)} modules")
            where = f"{target}, module {at} ({type(module).__name__})"
            on_device = call(where, partial(module.to, device))
            costs, value = _measured(where, f"module{at}", on_device, value, kept)
            if not value.is_floating_point() and any(each.weight_bytes for each in measured):
                raise InputError(where, f"returned {_kind(value)} of {value.dtype}, which has no gradient")
            measured.append(costs)
            control.report(f"module {at + 1} of {len(modules)}", None, None)
    finally:
        torch.set_num_threads(threads)
    # In graphs the kind `cpu` means a host; the measured device is an accelerator.
    kind = torch.cuda.get_device_name() if device == "cuda" else "cpu core"
    return Profile(Path(path).stem, kind, int(given.shape[0]), tuple(measured))


def _asked(target: str, path: str, name: str) -> tuple[Sequence[Any], Any]:
    """Call the user's function and return its modules and its micro-batch. Raise InputError for other return values."""
    import torch

    made = call(target, lambda: made_by(path, name))
    what = "must return a list of modules and a tensor for the first, such as [nn.Linear(8, 8)], torch.randn(4, 8)"
    if not (isinstance(made, tuple) and len(made) == 2):
        raise InputError(target, f"{what}; it returned {_kind(made)}")
    modules, given = made
    modules = list(modules) if isinstance(modules, list | tuple | torch.nn.Sequential | torch.nn.ModuleList) else []
    if not modules or not all(isinstance(each, torch.nn.Module) for each in modules):
        raise InputError(target, f"{what}; its first value is {_kind(made[0])}")
    if not isinstance(given, torch.Tensor) or not given.ndim or not given.shape[0]:
        named = f"{_kind(given)} of shape {tuple(given.shape)}" if isinstance(given, torch.Tensor) else _kind(given)
        raise InputError(target, f"{what}; its second value is {named}")
    return modules, given


def _kind(value: object) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}" if value is not None else "nothing"


def _measured(where: str, name: str, module: Any, given: Any, kept: dict[int, Any]) -> tuple[ModuleCosts, Any]:
    """Measure a module and return its costs and its output.

    `kept` contains the addresses of storages that earlier modules save for the backward pass. The function adds those
    of this module.
    """
    import torch

    weights = [each for each in module.parameters() if each.requires_grad]
    trained = given.detach().requires_grad_(given.is_floating_point())
    own, saved = {each.untyped_storage().data_ptr() for each in module.parameters()}, dict[int, Any]()
    feed = _feeder(where, module, trained)

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        made = call(where, lambda: module(feed()))
    if not isinstance(made, torch.Tensor):
        raise InputError(where, f"returned {_kind(made)}, but the next module needs a tensor")
    if trained.requires_grad and made.is_floating_point() and not made.requires_grad:
        raise InputError(where, "returned a tensor that is detached from its input, so there is no gradient")
    wanted = [trained] if trained.requires_grad else []
    handed, forward = torch.ones_like(made), _median(where, lambda: module(feed()))

    def gradients(of: Sequence[Any]) -> float:
        if not of or not made.requires_grad:
            return 0.0
        return _median(where, lambda: torch.autograd.grad(made, of, handed, retain_graph=True, allow_unused=True))

    whole = gradients([*wanted, *weights])
    halves = gradients(wanted), gradients(weights)
    fresh = sum(storage.nbytes() for address, storage in saved.items() if address not in kept)
    kept |= saved
    # A weight that several modules share counts once, for the first of them.
    held = {each.untyped_storage().data_ptr(): each for each in weights}
    sizes = sum(each.nbytes for address, each in held.items() if address not in kept), fresh, int(made.nbytes)
    kept |= {address: each.untyped_storage() for address, each in held.items()}
    return ModuleCosts(name, type(module).__name__, forward, whole, *halves, *sizes), made.detach()


def _feeder(where: str, module: Any, given: Any) -> Callable[[], Any]:
    """Return a function that gives the module's input: the tensor itself, or a copy if the module changes it."""
    try:
        call(where, lambda: module(given))
    except InputError as error:
        if "in-place" not in error.why:
            raise
        return given.clone  # type: ignore[no-any-return]
    return lambda: given


def _median(where: str, run: Callable[[], Any]) -> float:
    """Return the median time of one call in seconds."""
    import torch

    def timed() -> float:
        began = time.perf_counter()
        call(where, run)
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        return time.perf_counter() - began

    for _ in range(_WARMUP_RUNS):
        timed()
    took = list[float]()
    while len(took) < _MIN_TIMED_RUNS or (sum(took) < _TIMING_SECONDS and len(took) < _MAX_TIMED_RUNS):
        took.append(timed())
    return median(took)

"""The optional dependency PyTorch: whether it is installed, and its names of number formats."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version

from tessel_core.errors import InputError

TORCH_NAMES = {
    "fp64": "float64",
    "fp32": "float32",
    "tf32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    **{name: name for name in ("int64", "int32", "int16", "int8", "uint8", "bool")},
}
"""PyTorch dtype that computes each number format.  PyTorch has no arithmetic for formats that are not listed."""
_MIN_TORCH_VERSION = (2, 10)
_INSTALL = "pip install 'tessel-explorer[torch]'"


def why_no_torch() -> str:
    """Return the reason why PyTorch cannot be used, without a full stop; empty if it can."""
    for module, name in (("torch", "PyTorch"), ("array_api_compat", "array-api-compat")):
        if importlib.util.find_spec(module) is None:
            return f"needs {name}: {_INSTALL}"
    try:
        installed = version("torch")
    except PackageNotFoundError:
        return ""
    if tuple(map(int, installed.split(".")[:2])) < _MIN_TORCH_VERSION:
        oldest = ".".join(map(str, _MIN_TORCH_VERSION))
        return f"needs PyTorch {oldest} or newer, this is {installed}: {_INSTALL}"
    return ""


def need_torch(what: str) -> None:
    """Raise InputError that names `what` unless PyTorch is installed."""
    if why := why_no_torch():
        raise InputError(what, why)

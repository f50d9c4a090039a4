"""The optional extra `torch`: whether it is there, and what it calls number formats."""

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
"""How each format is computed in PyTorch; what is not here has no arithmetic there."""
_LEAST = (2, 10)
_INSTALL = "pip install 'tessel-explorer[torch]'"


def why_no_torch() -> str:
    """Why nothing can run on PyTorch, in one sentence without its full stop; empty where it can."""
    for module, name in (("torch", "PyTorch"), ("array_api_compat", "array-api-compat")):
        if importlib.util.find_spec(module) is None:
            return f"needs {name}: {_INSTALL}"
    try:
        found = version("torch")
    except PackageNotFoundError:
        return ""
    if tuple(map(int, found.split(".")[:2])) < _LEAST:
        return f"needs PyTorch {'.'.join(map(str, _LEAST))} or newer, this is {found}: {_INSTALL}"
    return ""


def need_torch(what: str) -> None:
    """Raise InputError at `what` unless PyTorch is there."""
    if why := why_no_torch():
        raise InputError(what, why)

"""Compile kernels with numba on their first call, and cache the result on disk if a folder is writable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def compiled(kernel: Callable[P, R]) -> Callable[P, R]:
    """Compile `kernel` to machine code on its first call.

    If neither the package's folder nor the home folder is writable, every process compiles again.
    """
    return _jitted(kernel)


def unmanaged(kernel: Callable[P, R]) -> Callable[P, R]:
    """Compile `kernel` like `compiled`, but without reference counting.

    Only for kernels that create neither arrays nor views. Reference counting can take nine tenths of the time of a
    kernel. This happens if small inlined functions read a dozen arrays.
    """
    return _jitted(kernel, _nrt=False)


def inlined(kernel: Callable[P, R]) -> Callable[P, R]:
    """Compile a short `kernel` so that numba copies it into the kernels that call it."""
    return cast(Callable[P, R], njit(nogil=True, error_model="numpy", inline="always")(kernel))


def _jitted(kernel: Callable[P, R], **options: Any) -> Callable[P, R]:
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        return cast(Callable[P, R], njit(cache=True, **options)(kernel))
    except RuntimeError:
        return cast(Callable[P, R], njit(**options)(kernel))

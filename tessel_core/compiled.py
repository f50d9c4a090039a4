"""How kernels are compiled: on their first call, kept on disk where there is a place for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def compiled(kernel: Callable[P, R]) -> Callable[P, R]:
    """`kernel` compiled to machine code when it is first called.

    Where neither the package's folder nor a home can be written, every process compiles anew.
    """
    return _kept(kernel)


def unmanaged(kernel: Callable[P, R]) -> Callable[P, R]:
    """As `compiled`, for kernels that make no arrays, nor views of them.

    References to arrays are not counted in them, which takes nine tenths of the time where a dozen arrays are read in
    small inlined steps.
    """
    return _kept(kernel, _nrt=False)


def inlined(kernel: Callable[P, R]) -> Callable[P, R]:
    """As `compiled`, for a few lines that run millions of times: copied into the kernels that call them."""
    return cast(Callable[P, R], njit(nogil=True, error_model="numpy", inline="always")(kernel))


def _kept(kernel: Callable[P, R], **options: Any) -> Callable[P, R]:
    options |= {"nogil": True, "error_model": "numpy"}
    try:
        return cast(Callable[P, R], njit(cache=True, **options)(kernel))
    except RuntimeError:
        return cast(Callable[P, R], njit(**options)(kernel))

"""How kernels are compiled: on their first call, kept on disk where there is a place for that."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

from numba import njit

P = ParamSpec("P")
R = TypeVar("R")


def compiled(kernel: Callable[P, R]) -> Callable[P, R]:
    """`kernel` compiled to machine code when it is first called.

    Where neither the package's folder nor a home can be written, every process compiles anew.
    """
    try:
        return cast(Callable[P, R], njit(cache=True, nogil=True, error_model="numpy")(kernel))
    except RuntimeError:
        return cast(Callable[P, R], njit(nogil=True, error_model="numpy")(kernel))


def inlined(kernel: Callable[P, R]) -> Callable[P, R]:
    """As `compiled`, for a few lines that run millions of times: copied into the kernels that call them."""
    return cast(Callable[P, R], njit(nogil=True, error_model="numpy", inline="always")(kernel))

"""Base class of page states that the address keeps, and readers of the parts of an address."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tessel_core.errors import InputError

Address = Mapping[str, str]
Read = Callable[[Callable[[], Any]], Any]
"""Calls a reader of a part of the address. If the part is invalid, it adds a message for the user and returns None."""


class InAddress(ABC):
    """State of a page in one tab, a part of which the address keeps."""

    steps: ClassVar[tuple[str, ...]] = ()
    """Keys whose changes each add an entry to the browser's history, so that Back undoes them one by one."""

    @abstractmethod
    def follow(self, address: Address, read: Read) -> None:
        """Set the state from the address."""

    @abstractmethod
    def in_address(self) -> dict[str, str]:
        """Return the part of the state that the address keeps."""

    def step_back(self, written: Address, address: Address) -> None:  # noqa: B027 most pages have no such steps
        """Follow the browser's Back button from the address that was `written` last. This default does nothing."""


def choice(key: str, address: Address, known: Mapping[str, str]) -> str:
    """Return the entry of `known` that the address names.

    Empty if it names no entry. Raises InputError for an unknown name.
    """
    value = address.get(key, "")
    if value and value not in known:
        raise InputError(key, f"must be one of {', '.join(known)}, got {value!r}")
    return known.get(value, "")


def whole_number(key: str, address: Address, digits: str = "[0-9]{1,6}", limits: str = "") -> int | None:
    """Return the whole number in the address, None if there is none. Raises InputError for other values."""
    text = address.get(key, "")
    if text and not re.fullmatch(digits, text):
        raise InputError(key, f"must be a whole number{limits}, got {text!r}")
    return int(text) if text else None

"""The protocol of page state in the address, and readers of its parts."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from tessel_core.errors import InputError

Address = Mapping[str, str]
Read = Callable[[Callable[[], Any]], Any]
"""Makes a part of what the address says, or tells the person why it cannot be followed and returns None."""


class InAddress(ABC):
    """The state of a page in one tab, a part of which stands in the address."""

    steps: ClassVar[tuple[str, ...]] = ()
    """The keys whose changes the browser's Back takes back one by one."""

    @abstractmethod
    def follow(self, address: Address, read: Read) -> None:
        """Take over what the address says."""

    @abstractmethod
    def in_address(self) -> dict[str, str]:
        """The part for the address."""

    def step_back(self, written: Address, address: Address) -> None:  # noqa: B027 most pages have no such steps
        """Follow the browser's Back from what was `written` last; nothing where no step leads through this page."""


def choice(key: str, address: Address, known: Mapping[str, str]) -> str:
    """One of `known`, empty where the address says nothing of it; InputError for anything else."""
    value = address.get(key, "")
    if value and value not in known:
        raise InputError(key, f"must be one of {', '.join(known)}, got {value!r}")
    return known.get(value, "")


def whole_number(key: str, address: Address, digits: str = "[0-9]{1,6}", limits: str = "") -> int | None:
    """A whole number, None where the address says nothing of it; InputError for what has other digits."""
    text = address.get(key, "")
    if text and not re.fullmatch(digits, text):
        raise InputError(key, f"must be a whole number{limits}, got {text!r}")
    return int(text) if text else None

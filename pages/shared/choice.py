"""What a part of the address chooses."""

from __future__ import annotations

import re
from collections.abc import Mapping

from tessel_core.errors import InputError


def choice(key: str, address: Mapping[str, str], known: Mapping[str, str]) -> str:
    """One of `known`, empty where the address says nothing of it; InputError for anything else."""
    value = address.get(key, "")
    if value and value not in known:
        raise InputError(key, f"must be one of {', '.join(known)}, got {value!r}")
    return known.get(value, "")


def whole_number(key: str, address: Mapping[str, str]) -> int | None:
    """A number of at most six digits, None where the address says nothing of it; InputError for anything else."""
    text = address.get(key, "")
    if text and not re.fullmatch("[0-9]{1,6}", text):
        raise InputError(key, f"must be a whole number, got {text!r}")
    return int(text) if text else None

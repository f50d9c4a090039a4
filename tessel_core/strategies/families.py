"""The families of networks whose strategies are compared."""

from __future__ import annotations

from collections.abc import Mapping

from tessel_core.errors import InputError
from tessel_core.strategies.family import Family
from tessel_core.strategies.gpt_family import GptFamily
from tessel_core.strategies.mlp_family import MlpFamily

FAMILIES: Mapping[str, Family] = {each.name: each for each in (MlpFamily(), GptFamily())}


def find_family(name: str) -> Family:
    """The family called `name`; InputError with the known names where there is none."""
    if name not in FAMILIES:
        raise InputError("family", f"{name!r} is not known, known are {', '.join(FAMILIES)}")
    return FAMILIES[name]

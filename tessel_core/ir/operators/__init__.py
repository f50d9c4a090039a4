"""The table of operators: one entry each, for any number of inputs."""

from tessel_core.errors import InputError
from tessel_core.ir.operators.attention import ATTENTION
from tessel_core.ir.operators.basic import BASIC
from tessel_core.ir.operators.communication import COMMUNICATION
from tessel_core.ir.operators.elementwise import ELEMENTWISE
from tessel_core.ir.operators.network import NETWORK
from tessel_core.ir.operators.operator import Operator, Work
from tessel_core.ir.operators.optimizers import OPTIMIZERS
from tessel_core.ir.operators.reductions import REDUCTIONS
from tessel_core.ir.operators.shaping import SHAPING
from tessel_core.ir.operators.stated import OPAQUE, STATED
from tessel_core.ir.operators.windows import WINDOWS

_ROOMS = (
    *(BASIC, ELEMENTWISE, SHAPING, REDUCTIONS, WINDOWS, NETWORK, ATTENTION),
    *(OPTIMIZERS, COMMUNICATION, STATED, OPAQUE),
)
OPERATORS: dict[str, Operator] = {each.kind: each for room in _ROOMS for each in room}
"""Every operator by kind."""


def find_operator(kind: str) -> Operator:
    """The operator of that kind; InputError with the known kinds where there is none."""
    if kind not in OPERATORS:
        raise InputError(f"operator {kind}", f"is not known, known are {', '.join(sorted(OPERATORS))}")
    return OPERATORS[kind]


__all__ = ["OPERATORS", "Operator", "Work", "find_operator"]

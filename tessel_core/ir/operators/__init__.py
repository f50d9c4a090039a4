"""The table of operators. Each entry serves any number of inputs.

Functions, norms, reductions, attention, windows and the choice of experts are computed in at least fp32. The result is
rounded once, as frameworks do. FLOPs count the arithmetic steps in an operator's definition.
"""

from tessel_core.errors import InputError, nearest
from tessel_core.ir.operators.attention import ATTENTION
from tessel_core.ir.operators.attention_steps import ATTENTION_STEPS
from tessel_core.ir.operators.basic import BASIC
from tessel_core.ir.operators.communication import COMMUNICATION
from tessel_core.ir.operators.dropout import DROPOUT
from tessel_core.ir.operators.elementwise import ELEMENTWISE
from tessel_core.ir.operators.experts import EXPERTS
from tessel_core.ir.operators.formats import CASTS, FORMAT, FUSED, KERNEL, check_costs
from tessel_core.ir.operators.normalization import NORMALIZATION, NORMALIZATION_GRADIENTS
from tessel_core.ir.operators.operator import Operator, Types, Work
from tessel_core.ir.operators.optimizers import OPTIMIZERS
from tessel_core.ir.operators.reductions import REDUCTION_GRADIENTS, REDUCTIONS
from tessel_core.ir.operators.ring import RING
from tessel_core.ir.operators.shaping import SHAPING
from tessel_core.ir.operators.stated import STATED
from tessel_core.ir.operators.transformers import TRANSFORMERS
from tessel_core.ir.operators.vocabulary import VOCABULARY
from tessel_core.ir.operators.windows import WINDOWS
from tessel_core.ir.program import Attributes
from tessel_core.ir.types import TensorType, interned

_TABLES = (
    *(BASIC, ELEMENTWISE, SHAPING, REDUCTIONS, REDUCTION_GRADIENTS, NORMALIZATION, NORMALIZATION_GRADIENTS, WINDOWS),
    *(TRANSFORMERS, VOCABULARY, DROPOUT, ATTENTION, ATTENTION_STEPS, RING, EXPERTS, OPTIMIZERS, COMMUNICATION, STATED),
)
OPERATORS: dict[str, Operator] = {each.kind: each for table in _TABLES for each in table}
"""Operators by kind."""
_COST_ATTRIBUTES = (CASTS, FORMAT, FUSED, KERNEL)
"""Attributes that change the cost of an operation. Every operator that runs on one device accepts them."""


def find_operator(kind: str) -> Operator:
    """Return the operator with the name `kind`. If there is none, raise InputError with the most similar names."""
    if kind not in OPERATORS:
        hint = nearest(kind, OPERATORS, "the folder tessel_core/ir/operators defines the known operators")
        raise InputError(f"operator {kind}", f"is not known, {hint}")
    return OPERATORS[kind]


def inferred(kind: str, types: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    """Return the types of an operation's outputs. The same arguments give the same object (the result is cached).

    Raises InputError for an unknown operator, a missing or unknown attribute, or input types that do not fit.
    """
    operator, values = find_operator(kind), dict(attributes)
    missing = [name for name in operator.attributes if name not in values]
    cost_attributes = () if operator.pattern or operator.stated else _COST_ATTRIBUTES
    unknown = [name for name in values if name not in (*operator.attributes, *operator.optional, *cost_attributes)]
    if missing or unknown:
        why = f"needs the attribute {missing[0]}" if missing else f"has no attribute {unknown[0]}"
        raise InputError(kind, why)
    outputs = tuple(map(interned, operator.infer(types, values)))
    check_costs(kind, types, outputs, values)
    return outputs


__all__ = ["OPERATORS", "Operator", "Work", "find_operator", "inferred"]

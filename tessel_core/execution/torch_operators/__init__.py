"""Operators in PyTorch. They are those of `ir/operators`, but some use a PyTorch kernel or change their inputs in
place.

In fp64 and fp32, results equal those of NumPy up to rounding. fp16 is converted to wider formats in the same operations
as in NumPy. bf16, which NumPy does not have, is computed in bf16. An operator that works in place overwrites an input
with its output. Callers must pass copies of inputs that they still need.
"""

from tessel_core.execution.torch_operators.formats import TORCH_TYPES, Meaning, from_numpy, to_numpy
from tessel_core.execution.torch_operators.in_place import IN_PLACE
from tessel_core.execution.torch_operators.kernels import KERNELS
from tessel_core.ir.operators import OPERATORS
from tessel_core.ir.operators.stated import STATED

TORCH_OPERATORS: dict[str, Meaning] = {
    **{each.kind: each.compute for each in OPERATORS.values() if not each.pattern and each not in STATED},
    **KERNELS,
    **IN_PLACE,
}
"""Function of tensors and attributes for each kind of operator, except `block`, `delay` and `opaque`."""

__all__ = ["TORCH_OPERATORS", "TORCH_TYPES", "Meaning", "from_numpy", "to_numpy"]

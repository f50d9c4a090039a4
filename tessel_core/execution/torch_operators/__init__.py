"""What operators mean in PyTorch: those of `ir/operators`, some by a kernel of PyTorch's or in place.

A meaning equals the one in NumPy but for rounding, in fp64 and fp32; fp16 is computed where NumPy widens it too, and
bf16, which NumPy has not, is bf16 here.  Of operators in place, those inputs that the output replaces are changed: who
still needs them hands over copies.
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
"""Per kind, a function of tensors and attributes; `block`, `delay` and `opaque` say no meaning."""

__all__ = ["TORCH_OPERATORS", "TORCH_TYPES", "Meaning", "from_numpy", "to_numpy"]

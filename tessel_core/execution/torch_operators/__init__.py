"""What operators mean in PyTorch: an entry for each operator of `ir/operators`, but for communication.

Entries are laid out in files of the same names.  A meaning equals the one in NumPy but for rounding, in fp64 and fp32;
fp16 is computed where NumPy widens it too, and bf16, which NumPy has not, is bf16 here.  Of operators in place, those
inputs that the output replaces are changed: who still needs them hands over copies.
"""

from tessel_core.execution.torch_operators.attention import ATTENTION
from tessel_core.execution.torch_operators.basic import BASIC
from tessel_core.execution.torch_operators.elementwise import ELEMENTWISE
from tessel_core.execution.torch_operators.experts import EXPERTS
from tessel_core.execution.torch_operators.formats import TORCH_TYPES, Meaning, from_numpy, to_numpy
from tessel_core.execution.torch_operators.normalization import NORMALIZATION
from tessel_core.execution.torch_operators.optimizers import OPTIMIZERS
from tessel_core.execution.torch_operators.reductions import REDUCTIONS
from tessel_core.execution.torch_operators.shaping import SHAPING
from tessel_core.execution.torch_operators.transformers import TRANSFORMERS
from tessel_core.execution.torch_operators.windows import WINDOWS

TORCH_OPERATORS: dict[str, Meaning] = {
    **BASIC,
    **ELEMENTWISE,
    **SHAPING,
    **REDUCTIONS,
    **NORMALIZATION,
    **WINDOWS,
    **TRANSFORMERS,
    **ATTENTION,
    **EXPERTS,
    **OPTIMIZERS,
}
"""Per kind, a function of tensors and attributes; `block`, `delay` and `opaque` say no meaning."""

__all__ = ["TORCH_OPERATORS", "TORCH_TYPES", "Meaning", "from_numpy", "to_numpy"]

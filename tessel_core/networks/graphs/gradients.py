"""What gradients cost: a table of kinds, in multiples of the forward's work.

Every tensor is counted once between memory and processor, forward and backward.  To sum the gradients of one output is
`with_backward`'s to count.  A loss takes as long back as forth: its gradient takes the place of the logits.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from enum import Flag, auto
from operator import add

from tessel_core.model import DeviceTime, Operator

FLOPS_BOUND = 50.0
"""FLOPs per byte above which an operator of an unknown kind is taken for a product of matrices."""


class Keeps(Flag):
    """What a backward reads again of its forward's tensors, weights apart."""

    NOTHING = 0
    INPUTS = auto()
    OUTPUT = auto()


@dataclass(frozen=True, slots=True)
class Share:
    """Work in multiples of the forward's FLOPs, bytes and time, and of the bytes of its output and its weights."""

    flops: float = 0.0
    bytes: float = 0.0
    outputs: float = 0.0
    weights: float = 0.0
    time: float = 0.0
    """For operators whose times are given."""

    def __add__(self, other: Share) -> Share:
        return Share(*map(add, astuple(self), astuple(other)))

    def flops_of(self, operator: Operator) -> float | None:
        """FLOPs of this share; None where the forward's are not known."""
        return None if operator.flops is None else self.flops * operator.flops

    def bytes_of(self, operator: Operator) -> float | None:
        """Bytes moved; None where the forward's are not known."""
        if operator.bytes is None:
            return None
        own = self.outputs * (operator.output_bytes or 0) + self.weights * (operator.weight_bytes or 0)
        return self.bytes * operator.bytes + own

    def times_of(self, operator: Operator) -> tuple[DeviceTime, ...]:
        """Times on the kinds of devices that the forward has times for."""
        return tuple(DeviceTime(each.kind, self.time * each.time) for each in operator.times)


NO_WORK = Share()
FORWARD = Share(flops=1, bytes=1, time=1)
"""As much as the forward."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The backward of one kind of operators."""

    inputs: Share
    """The gradients of its inputs."""
    weights: Share = NO_WORK
    """The gradient of its weights, where it has any."""
    keeps: Keeps = Keeps.NOTHING
    apart: bool = True
    """Whether the two can be computed apart; one kernel may compute both."""
    passes_on: bool = False
    """Every input has the gradient of the output, where it has its size."""


_PRODUCT = Rule(FORWARD, FORWARD, Keeps.INPUTS)
_PRODUCT_OF_TWO = Rule(FORWARD + FORWARD, keeps=Keeps.INPUTS)
_ATTENTION = Rule(Share(2.5, 2, time=2.5), keeps=Keeps.INPUTS | Keeps.OUTPUT)
"""Five products where the forward has two: the scores are computed again [Dao 2022, arXiv 2205.14135]."""
_NORM = Rule(Share(1, 1, outputs=1, time=1.5), FORWARD, Keeps.INPUTS, apart=False)
"""Input and gradient are read once for the input's gradient, which is written, and once for the weights'."""
_ONE_TO_ONE = Share(1, 1, outputs=1, time=1.5)
_OF_INPUT, _OF_OUTPUT = Rule(_ONE_TO_ONE, keeps=Keeps.INPUTS), Rule(_ONE_TO_ONE, keeps=Keeps.OUTPUT)
_OF_TWO = Rule(Share(2, 1, outputs=2, time=5 / 3), FORWARD, Keeps.INPUTS)
"""Both inputs and the gradient are read, two gradients are written."""
_SUM = Rule(NO_WORK, FORWARD, passes_on=True)
_MOVE = Rule(FORWARD)
_LOOKUP = Rule(NO_WORK, Share(outputs=3, weights=1, time=1))
"""A dense gradient is filled with zeros, and the tokens' gradients are added to it: read, read, write."""
_OTHER = Rule(FORWARD, keeps=Keeps.INPUTS)

_KINDS: tuple[tuple[Rule, str], ...] = (
    (_ATTENTION, "attention multi_head_attention"),
    (_NORM, "layer_norm simplified_layer_norm rms_norm batch_norm group_norm instance_norm lrn"),
    (_OF_OUTPUT, "softmax log_softmax relu sigmoid tanh exp sqrt reciprocal"),
    (_OF_INPUT, "gelu silu swish elu selu leaky_relu prelu softplus softsign hard_sigmoid hard_swish mish erf log sin"),
    (_OF_INPUT, "cos abs clip"),
    (_OF_TWO, "gate gated_gelu mul div pow max min"),
    (_SUM, "add sub sum"),
    (_MOVE, "transpose concat split slice pad gather roll copy cast tile expand resize neg dropout"),
    (_MOVE, "reduce_mean reduce_sum mean average_pool global_average_pool all_reduce all_gather"),
    (_MOVE, "reshape flatten squeeze unsqueeze identity output"),
    (_LOOKUP, "embedding"),
    (_OTHER, "cross_entropy softmax_cross_entropy_loss max_pool"),
)
_PRODUCTS = frozenset(("matmul", "linear", "gemm", "conv", "conv_transpose", "einsum"))
_RULES = {kind: rule for rule, kinds in _KINDS for kind in kinds.split()}


def rule_of(operator: Operator) -> Rule:
    """The rule of its kind.

    Of kinds that are not in the table, those with weights, those with more than `FLOPS_BOUND` FLOPs a byte and those of
    which neither FLOPs nor bytes are known cost two forwards, all others one.
    """
    if operator.kind in _PRODUCTS:
        return _PRODUCT if operator.weight_bytes else _PRODUCT_OF_TWO
    if operator.kind in _RULES:
        return _RULES[operator.kind]
    if is_view(operator):
        return _MOVE
    if operator.weight_bytes:
        return _PRODUCT
    nothing_known = operator.flops is None and operator.bytes is None
    heavy = (operator.flops or 0.0) > FLOPS_BOUND * (operator.bytes or 0.0)
    return _PRODUCT_OF_TWO if nothing_known or heavy else _OTHER


def is_known_kind(operator: Operator) -> bool:
    """Whether the table has a rule for its kind, and not only for operators like it."""
    return operator.kind in _PRODUCTS or operator.kind in _RULES


def is_view(operator: Operator) -> bool:
    """Whether it does no work, so that its output is its input under another name."""
    return operator.flops == 0 and operator.bytes == 0

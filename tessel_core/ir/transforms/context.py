"""Context parallelism: each device has some of the tokens of every sample. Devices communicate only in attention."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from tessel_core.errors import InputError
from tessel_core.ir.distributed import Distributed, Role, check_degree
from tessel_core.ir.operators.attributes import integer
from tessel_core.ir.operators.operator import Types, Values
from tessel_core.ir.program import AttributeValue, Op
from tessel_core.ir.transforms.expansion import CONTEXT, Degrees, collective, expanded
from tessel_core.ir.transforms.sharding import Sharding, Spread, State, States, one_device
from tessel_core.ir.transforms.tensor import TOKENS, finished_sums, spread_of_tokens


class ContextMethod(StrEnum):
    """How devices communicate in attention."""

    RING = "ring"
    """Keys and values circulate in a ring, one block per step [Liu 2023, arXiv 2310.01889].

    Each device has one chunk from each end of the sequence, so a causal mask leaves equal work to all devices.
    """
    ALL_TO_ALL = "all-to-all"
    """During attention, each device has all tokens of some heads.

    This is DeepSpeed Ulysses [Jacobs 2023, arXiv 2309.14509].
    """


@dataclass(frozen=True, slots=True)
class ContextParallel:
    """Context parallelism over `degree` devices. Each has an equal number of the tokens of every sample, and all
    weights.

    The gradient of a weight is the sum of the gradients on all devices.

    Raises InputError if the program has no sequence axis, or if the number of tokens or heads does not divide.
    """

    degree: int
    method: ContextMethod = ContextMethod.RING

    def __call__(self, model: Distributed) -> Distributed:
        """Return the one-device model, distributed over `degree` devices."""
        return expanded(finished_sums(self.of_one(model), CONTEXT, self.degree), Degrees(context=self.degree))

    def of_one(self, model: Distributed) -> Distributed:
        """Convert the model of one device to the program that each of the `degree` devices runs."""
        check_degree("context parallelism", self.degree)
        if self.degree == 1:
            return model
        one_device(model, "context parallelism")
        program = model.program
        if not any(role.sequence_axis is not None for role in model.roles.values()):
            raise InputError("context parallelism", f"needs a sequence of tokens, and {program.name} has none")
        if any(op.kind == "write" for op in program.ops):
            raise InputError("context parallelism", "needs whole sequences, and this program adds tokens to a cache")
        return (_Ring if self.method is ContextMethod.RING else _AllToAll)(model, self.degree).sharded()


class _Context(Sharding):
    over = CONTEXT

    def axis_of(self, value: int, role: Role) -> int | None:
        axis = role.sequence_axis
        if axis is not None:
            tokens, chunks = self.source.types[value].shape[axis], self.degree * (1 + self.balanced)
            if tokens % chunks:
                raise InputError("context parallelism", f"{tokens} tokens do not divide into {chunks} equal chunks")
        return axis

    def spread(self, op: Op, states: States, types: Types, values: Values) -> Spread:
        """Divide activations along their tokens.

        Raises InputError for attention with a bias, which cannot be divided.
        """
        if op.kind in ("attention_bias", "attention_bias_grad"):
            raise InputError("context parallelism", f"cannot cut the bias of {op.tag.name} ({op.kind})")
        pairs = zip(states, types, strict=True)
        states = [TOKENS if state.how == "part" and len(each.shape) == 3 else state for state, each in pairs]
        return spread_of_tokens(op, states, types, values)

    def placed(self, op: Op, needed: States, made: States) -> dict[str, AttributeValue]:
        """Return the attributes of a rotary embedding that tell which positions of the sequence the device has."""
        return self._place if op.kind == "rotary" and needed[0] == TOKENS else {}

    @property
    def _place(self) -> dict[str, AttributeValue]:
        return {"over": self.over, "index": 0, "parts": self.degree, **({"balanced": 1} if self.balanced else {})}


class _AllToAll(_Context):
    def spread(self, op: Op, states: States, types: Types, values: Values) -> Spread:
        """Divide attention by heads, and all other operators by tokens."""
        if op.kind not in ("attention", "attention_grad"):
            return super().spread(op, states, types, values)
        heads = types[1].shape[2] // integer(values, "head_size", 1)
        if heads % self.degree:
            why = f"{heads} heads of keys and values do not divide among {self.degree} devices; choose the ring method"
            raise InputError("context parallelism", why)
        of_heads = State("part", 2)
        return [of_heads] * len(states), [of_heads] * len(op.outputs)


class _Ring(_Context):
    balanced = True

    def __init__(self, model: Distributed, degree: int) -> None:
        super().__init__(model, degree)
        self._found: dict[str, tuple[int, int]] = {}
        """Output of each attention and its log-sum-exp, by the name of the attention."""

    def rewritten(self, op: Op) -> bool:
        """Replace attention and its gradient by one operation per block of keys. Return whether `op` was replaced."""
        if op.kind not in ("attention", "attention_grad"):
            return False
        taken = [self.converted(value, TOKENS, op.tag) for value in op.inputs]
        block = dict(op.attributes) | {"over": self.over, "index": 0, "parts": self.degree}
        made = self._forward(op, taken, block) if op.kind == "attention" else self._backward(op, taken, block)
        for value, local in zip(op.outputs, made, strict=True):
            self.values[value], self.state[value] = local, TOKENS
        return True

    def _shift(self, op: Op, values: list[int]) -> list[int]:
        return list(self.build.add("shift", values, op.tag, **collective(self.over, self.degree, len(values))))

    def _forward(self, op: Op, taken: list[int], block: dict[str, AttributeValue]) -> tuple[int, ...]:
        queries, *keys = taken
        found: tuple[int, ...] = ()
        for step in range(self.degree):
            # The next block is sent while this block is computed.
            ahead = self._shift(op, keys) if step + 1 < self.degree else []
            made = self.build.add("attention_block", [queries, *keys], op.tag, **block, step=step)
            found = self.build.add("attention_merge", [*found, *made], op.tag) if found else made
            keys = ahead
        out, logs = found
        self._found[op.tag.name] = out, logs
        return (out,)

    def _backward(self, op: Op, taken: list[int], block: dict[str, AttributeValue]) -> tuple[int, ...]:
        queries, *keys, gradient = taken
        out, logs = self._found[op.tag.name]
        by_query, by_keys = None, list[int]()
        for step in range(self.degree):
            ahead = self._shift(op, keys) if step + 1 < self.degree else []
            inputs = [queries, *keys, out, logs, gradient]
            by, *more = self.build.add("attention_block_grad", inputs, op.tag, **block, step=step)
            by_query = by if by_query is None else self.build.one("add", [by_query, by], op.tag)
            if by_keys:
                pairs = zip(by_keys, more, strict=True)
                more = [self.build.one("add", pair, op.tag) for pair in pairs]
            by_keys, keys = self._shift(op, more), ahead
        assert by_query is not None
        return by_query, *by_keys

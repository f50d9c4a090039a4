"""Rules of operators that change where numbers stand.

Attributes say no size that follows from the input's, so that they hold for a part of the batch as well.
"""

from __future__ import annotations

import math

from tessel_core.networks.programs.onnx.use import Rule, Said, Shape, Use, steered_axes

_STEERED_SLICE = 10
"""From this opset on, a slice is said by inputs."""
_STEERED_PAD = 11


def reshaping(shape: Shape, made: Shape) -> Shape:
    """How to say a reshape: 0 for sizes that stay, from the front, -1 for the first that does not.

    >>> reshaping((8, 5, 12), (8, 5, 3, 4)), reshaping((8, 5, 12), (40, 12))
    ((0, 0, -1, 4), (-1, 12))
    """
    same = 0
    while same < min(len(shape), len(made)) and shape[same] == made[same]:
        same += 1
    if same == len(made) or not math.prod(made):
        return (0,) * same if same == len(made) else made
    return (*(0,) * same, -1, *made[same + 1 :])


def _reshape(use: Use) -> Said | None:
    return use.say("reshape", 1, shape=reshaping(use.shape, use.made))


def _transpose(use: Use) -> Said | None:
    rank = len(use.shape)
    axes = use.integers("perm") or tuple(reversed(range(rank)))
    return use.say("permute" if use.node.is_ready else "transpose", axes=axes)


def _split(use: Use) -> Said | None:
    if not all(use.node.outputs):
        return None
    axis = use.integer("axis", 0) % max(len(use.shape), 1)
    sizes = tuple(use.network.tensors[name].shape[axis] for name in use.node.outputs)
    if len(set(sizes)) == 1:
        return use.say("split", 1, axis=axis, parts=len(sizes))
    return use.say("split_at", 1, axis=axis, sizes=sizes)


def _slice(use: Use) -> Said | None:
    """Starts and ends may lie outside of the tensor, and may count from its end."""
    if any(use.is_unknown(position) for position in (1, 2, 3, 4)):
        return None
    by_inputs = use.opset >= _STEERED_SLICE
    starts = use.argument(1) if by_inputs else use.integers("starts")
    ends = use.argument(2) if by_inputs else use.integers("ends")
    if starts is None or ends is None:
        return None
    axes = steered_axes(use, 3) or tuple(range(len(starts)))
    steps = use.argument(4) or (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        return None
    rank = len(use.shape)
    named = tuple(axis % rank for axis in axes)
    each = zip(named, starts, ends, steps, strict=True)
    taken = [range(use.shape[axis])[start:end:step] for axis, start, end, step in each]
    return use.say(
        "strided_slice",
        1,
        axes=named,
        counts=tuple(map(len, taken)),
        starts=tuple(places.start if places else 0 for places in taken),
        steps=steps,
    )


def _expand(use: Use) -> Said | None:
    """1 for sizes that the input has."""
    before = len(use.made) - len(use.shape)
    has = (1,) * before + use.shape
    return use.say(
        "expand", 1, shape=tuple(1 if own == size else size for own, size in zip(has, use.made, strict=True))
    )


def _pad(use: Use) -> Said | None:
    if any(use.is_unknown(position) for position in (1, 2, 3)) or use.text("mode", "constant") != "constant":
        return None
    by_inputs = use.opset >= _STEERED_PAD
    pads = (use.argument(1) if by_inputs else use.integers("pads")) or ()
    value = use.node.arguments.get(2, (0.0,))[0] if by_inputs else use.number("value", 0.0)
    rank = len(use.shape)
    axes = use.argument(3) or tuple(range(rank))
    if len(pads) != 2 * len(axes) or min(pads, default=0) < 0:
        return None
    both = [0] * 2 * rank
    for place, axis in enumerate(axes):
        both[axis % rank] = pads[place]
        both[rank + axis % rank] = pads[len(axes) + place]
    return use.say("pad", 1, pads=tuple(both), value=float(value))


def _gather(use: Use) -> Said | None:
    return use.say("take", axis=use.integer("axis", 0))


MOVES: dict[str, Rule] = {
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _reshape),
    "Transpose": _transpose,
    "Concat": lambda use: use.say("concat", axis=use.integer("axis", 1)),
    "Split": _split,
    "Slice": _slice,
    "Expand": _expand,
    "Pad": _pad,
    "Gather": _gather,
}

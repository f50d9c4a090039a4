"""The loss of logits whose vocabulary is divided among devices [Shoeybi 2019, section 3].

Each device computes three numbers per prediction from its classes: the largest logit, the sum of exponentials relative
to it, and the target's logit if the device has that class. These numbers are gathered. From them, every device computes
the loss and the gradient of its own logits. So no logits are sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from tessel_core.ir.operators.arrays import in_dtype, in_format, namespace, wide
from tessel_core.ir.operators.attributes import integer
from tessel_core.ir.operators.operator import Array, Arrays, Operator, Types, Values, Work, need
from tessel_core.ir.operators.rules import together
from tessel_core.ir.operators.work import moved, read_work
from tessel_core.ir.types import TensorType, check_real, wide_format

SCORES = 3
"""Numbers per prediction: the largest logit, the sum of exponentials, the target's logit."""


def _check(logits: TensorType, targets: TensorType, values: Values) -> None:
    fits = len(logits.shape) > 0 and targets.shape == logits.shape[:-1] and targets.dtype.startswith("int")
    need(fits, f"needs logits [.., n] and one class per row, got {logits} and {targets}")
    need(integer(values, "index") < integer(values, "parts", 1), f"index must be below {values['parts']}")


def _scores(types: Types, values: Values) -> tuple[TensorType, ...]:
    logits, targets = together(types, 2)
    _check(logits, targets, values)
    return (TensorType(wide_format(logits.dtype), (*targets.shape, SCORES), logits.device),)


def local_classes(targets: Array, classes: int, values: Values) -> tuple[Array, Array]:
    """Return the targets as classes of this device's part, and a mask of the targets that it has.

    Targets of other parts become class 0.
    """
    found = targets - integer(values, "index") * classes
    is_local = (found >= 0) & (found < classes)
    return namespace(targets).where(is_local, found, 0), is_local


def _scores_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    logits = wide(arrays[0])
    xp, (at, is_local) = namespace(logits), local_classes(arrays[1], logits.shape[-1], values)
    largest = xp.max(logits, axis=-1)
    total = xp.exp(logits - largest[..., None]).sum(axis=-1)
    hit = xp.where(is_local, xp.take_along_axis(logits, xp.astype(at[..., None], xp.int64), axis=-1)[..., 0], 0)
    return [xp.stack((largest, total, hit), axis=-1)]


def _joined(scores: Array) -> tuple[Array, Array]:
    """Return the logarithm of the sum of all exponentials, and the target's logit.

    `scores` is [.., parts x 3], the numbers of all devices.
    """
    each = scores.reshape(*scores.shape[:-1], -1, SCORES)
    xp = namespace(scores)
    largest = xp.max(each[..., 0], axis=-1)
    total = (each[..., 1] * xp.exp(each[..., 0] - largest[..., None])).sum(axis=-1)
    return largest + xp.log(total), each[..., 2].sum(axis=-1)


def _loss(types: Types, values: Values) -> tuple[TensorType, ...]:
    scores, number = together(types, 2)
    check_real(str(values["dtype"]))
    fits = len(scores.shape) > 0 and scores.shape[-1] % SCORES == 0 and number.shape == ()
    need(fits, f"needs scores [.., parts x {SCORES}] and the number of predictions, got {scores} and {number}")
    return (TensorType(str(values["dtype"]), scores.shape[:-1], scores.device),)


def _loss_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    scores, number = arrays
    whole, hit = _joined(scores)
    return [in_dtype((whole - hit) / number, str(values["dtype"]))]


def _loss_grad(types: Types, values: Values) -> tuple[TensorType, ...]:
    logits, targets, scores, _ = together(types, 4)
    _check(logits, targets, values)
    wanted = TensorType(
        wide_format(logits.dtype), (*targets.shape, SCORES * integer(values, "parts", 1)), logits.device
    )
    need(scores == wanted, f"needs the scores of all parts, {wanted}, got {scores}")
    return (logits,)


def _loss_grad_compute(arrays: Arrays, values: Values) -> Sequence[Array]:
    logits, targets, scores, number = arrays
    xp, classes = namespace(logits), logits.shape[-1]
    slope = xp.exp(wide(logits) - _joined(scores)[0][..., None])
    at, is_local = local_classes(targets, classes, values)
    hit = (at[..., None] == xp.arange(classes, device=logits.device)) & is_local[..., None]
    return [in_format((slope - xp.where(hit, 1, 0)) / number, logits)]


def _of_scores(types: Types, outputs: Types, values: Values) -> Work:
    return Work(4.0 * types[0].elements, moved(types, outputs))


_PLACE = ("index", "parts")

VOCABULARY = (
    Operator("vocabulary_scores", _scores, _scores_compute, read_work(3.0), _PLACE, optional=("over",)),
    Operator("vocabulary_loss", _loss, _loss_compute, _of_scores, ("dtype",)),
    Operator("vocabulary_loss_grad", _loss_grad, _loss_grad_compute, read_work(4.0), _PLACE, optional=("over",)),
)
"""Each operator processes part `index` of the `parts` parts of the vocabulary."""

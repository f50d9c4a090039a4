"""Attributes of a reshape that are also valid for a part of the batch."""

from __future__ import annotations

import math


def reshaping(shape: tuple[int, ...], made: tuple[int, ...]) -> tuple[int, ...]:
    """Return the attribute `shape` of a reshape from sizes `shape` to `made`, valid for every batch size.

    Leading sizes that do not change become 0. The first size that changes becomes -1.

    >>> reshaping((8, 5, 12), (8, 5, 3, 4)), reshaping((8, 5, 12), (40, 12))
    ((0, 0, -1, 4), (-1, 12))
    """
    same = 0
    while same < min(len(shape), len(made)) and shape[same] == made[same]:
        same += 1
    if same == len(made) or not math.prod(made):
        return (0,) * same if same == len(made) else made
    return (*(0,) * same, -1, *made[same + 1 :])

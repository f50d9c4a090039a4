"""Draw a schedule of any size with a fixed number of columns.

Each column shows how a device divides its time between kinds of blocks. Unlike bars, the cost in the browser does not
depend on the number of blocks.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from tessel_core.charts.bars import Window
from tessel_core.charts.palette import KIND_COLOURS, channels
from tessel_core.model import BlockKind, Schedule
from tessel_core.model.intervals import worked_until

_COLUMNS = 1_600
"""Number of columns, about the number of pixels across a screen."""
_MAX_CELLS = 128_000
_LEVELS = 6
"""Number of steps of a share. Shares are drawn in sixths. The hover text has percentages."""

_MIXES = tuple(mix for mix in product(range(_LEVELS + 1), repeat=len(BlockKind)) if sum(mix) <= _LEVELS)
"""All combinations of shares of the kinds in a column. The rest of the column is idle."""
_MIX_NUMBER = {mix: number for number, mix in enumerate(_MIXES)}


def column_edges(window: Window, lanes: int) -> NDArray[np.float64]:
    """Return the boundaries of the columns in ticks."""
    columns = max(200, min(_COLUMNS, _MAX_CELLS // lanes))
    return np.linspace(*window, min(columns, window[1] - window[0]) + 1)


def busy_shares(schedule: Schedule, edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of each column that each device spends on each kind, with shape (kinds, devices, columns).

    Runs on one device must not overlap.
    """
    kinds, devices = list(BlockKind), len(schedule.plan.devices)
    kind = np.array([kinds.index(block.kind) for block in schedule.plan.blocks])[schedule.block]
    shares = np.zeros((len(kinds), devices, len(edges) - 1))
    for d in range(devices):
        on = schedule.runs_on(d)
        for k in np.unique(kind[on]).tolist():
            rows = on[kind[on] == k]
            shares[k, d] = np.diff(worked_until(edges, schedule.start[rows], schedule.duration[rows]))
    found: NDArray[np.float64] = shares / np.diff(edges)
    return found


def raster_trace(schedule: Schedule, divisor: float, window: Window) -> go.Heatmap:
    """Return one trace of coloured columns.

    The colour mixes those of the kinds of blocks that run in the column, and is fainter if the device is partly idle.
    """
    edges = column_edges(window, len(schedule.plan.devices))
    shares, ends = busy_shares(schedule, edges), edges / divisor
    percent = np.moveaxis(np.rint(100 * shares), 0, -1).astype(np.uint8)
    kinds = {block.kind for block in schedule.plan.blocks}
    shown = [i for i, kind in enumerate(BlockKind) if kind in kinds]
    hover = " · ".join(f"{list(BlockKind)[i]} %{{customdata[{n}]}} %" for n, i in enumerate(shown))
    return go.Heatmap(
        name="busy shares",
        z=_mix_numbers(shares),
        x=(ends[:-1] + ends[1:]) / 2,
        y=np.arange(shares.shape[1]),
        zmin=-0.5,
        zmax=len(_MIXES) - 0.5,
        colorscale=_colour_scale(),
        showscale=False,
        ygap=3,
        customdata=percent[..., shown],
        hovertemplate=f"%{{x:.4g}}: {hover}<extra></extra>",
    )


def _mix_numbers(shares: NDArray[np.float64]) -> NDArray[np.uint8]:
    """Return the number of the nearest combination of shares for each device and column.

    Rounding never exceeds a full column.
    """
    filled = np.rint(_LEVELS * np.cumsum(shares, axis=0)).astype(int)
    parts = np.diff(filled, axis=0, prepend=0)
    table = np.zeros((_LEVELS + 1,) * len(BlockKind), dtype=np.uint8)
    for mix, number in _MIX_NUMBER.items():
        table[mix] = number
    return np.asarray(table[tuple(parts)])


def _colour_scale() -> list[tuple[float, str]]:
    """Return a stepped colour scale with one colour per combination of shares."""
    scale = []
    for number, mix in enumerate(_MIXES):
        colour = _mixed(mix)
        scale += [(number / len(_MIXES), colour), ((number + 1) / len(_MIXES), colour)]
    return scale


def _mixed(mix: tuple[int, ...]) -> str:
    busy = sum(mix)
    if not busy:
        return "rgba(0, 0, 0, 0)"
    hues = [channels(KIND_COLOURS[kind]) for kind in BlockKind]
    red, green, blue = (round(sum(part * hue[i] for part, hue in zip(mix, hues, strict=True)) / busy) for i in range(3))
    return f"rgba({red}, {green}, {blue}, {busy / _LEVELS:.3f})"

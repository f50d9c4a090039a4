"""Draw a device mesh: its nodes and devices, and a heat map of link bandwidths or latencies."""

from __future__ import annotations

from collections import Counter
from math import ceil

import numpy as np
import plotly.graph_objects as go

from tessel_core.charts.figure import finish, plain
from tessel_core.charts.palette import FAINT, QUIET, SERIES_COLOURS, ink
from tessel_core.model import Device, DeviceMesh
from tessel_core.units import show_memory

_MAX_HEAT_MAP_DEVICES = 256
"""Largest number of devices in the heat map. A larger mesh is shown by the first device of each node."""
_MAX_AXIS_NAMES = 32
"""Largest number of names along an axis. If there are more, names are left out at equal distances."""
_MAX_LINK_LINES = 64
"""Largest number of individual links that are drawn. More lines would hide the devices."""
_ACROSS = 4
"""Devices per row within a node."""
_NODES_ACROSS = 4
_TOP, _BOTTOM = 24, 8


def link_heat_map(mesh: DeviceMesh, *, latency: bool = False) -> go.Figure:
    """Draw the bandwidth or the latency between each pair of devices, on a logarithmic colour scale."""
    shown = _representatives(mesh)
    names = [plain(mesh.devices[i].name) for i in shown]
    facts = np.full((len(shown), len(shown), 2), np.nan, dtype=np.float32)
    for row, one in enumerate(shown):
        for column, other in enumerate(shown[:row]):
            link = mesh.link(one, other)
            facts[row, column] = facts[column, row] = link.bandwidth / 1e9, link.latency * 1e6
    values = facts[:, :, 1 if latency else 0]
    with np.errstate(divide="ignore"):
        heat = np.log10(np.where(values > 0, values, np.nan))
    figure = go.Figure(
        go.Heatmap(
            z=heat,
            x=names,
            y=names,
            customdata=facts,
            colorscale="Cividis",
            **_range(heat),
            reversescale=latency,
            colorbar=_ticks(values, "µs" if latency else "GB/s"),
            hovertemplate="%{y} – %{x}: %{customdata[0]:.4~g} GB/s, %{customdata[1]:.4~g} µs<extra></extra>",
            xgap=1 if len(shown) <= _MAX_AXIS_NAMES else 0,
            ygap=1 if len(shown) <= _MAX_AXIS_NAMES else 0,
        )
    )
    step = ceil(len(shown) / _MAX_AXIS_NAMES)
    figure.update_xaxes(tickvals=names[::step], showgrid=False, constrain="domain", type="category")
    figure.update_yaxes(tickvals=names[::step], showgrid=False, autorange="reversed", scaleanchor="x", type="category")
    return finish(figure, 388, _TOP, _BOTTOM, margin={"r": 8})


def _representatives(mesh: DeviceMesh) -> list[int]:
    if len(mesh.devices) <= _MAX_HEAT_MAP_DEVICES:
        return list(range(len(mesh.devices)))
    first: dict[int, int] = {}
    for i, device in enumerate(mesh.devices):
        first.setdefault(device.node, i)
    return list(first.values())[:_MAX_HEAT_MAP_DEVICES]


def _range(heat: np.ndarray) -> dict[str, float]:
    """Return a range of the colour scale.

    It spans at least a factor of ten, so that equal links get the colour of the best.
    """
    if not np.isfinite(heat).any():
        return {}
    least, most = float(np.nanmin(heat)), float(np.nanmax(heat))
    return {"zmin": min(least, most - 1), "zmax": most}


def _ticks(values: np.ndarray, unit: str) -> dict[str, object]:
    """Return the colour bar. If few different values occur, its ticks are these values."""
    known = np.unique(values[np.isfinite(values) & (values > 0)])
    bar: dict[str, object] = {"title": {"text": unit, "side": "right"}, "thickness": 12, "outlinewidth": 0}
    if len(known) <= 8:
        bar |= {"tickvals": np.log10(known).tolist(), "ticktext": [f"{each:.4g}" for each in known]}
    return bar


def mesh_picture(mesh: DeviceMesh) -> go.Figure:
    """Draw the nodes side by side.

    Each device is a square in the colour of its kind. Lines are individual links between devices.
    """
    members: dict[int, list[int]] = {}
    for i, device in enumerate(mesh.devices):
        members.setdefault(device.node, []).append(i)
    rows = max(ceil(len(each) / _ACROSS) for each in members.values())
    at: dict[str, tuple[float, float]] = {}
    figure = go.Figure()
    frames, titles = [], []
    for place, (node, on) in enumerate(members.items()):
        left = (place % _NODES_ACROSS) * (_ACROSS + 0.6)
        top = (place // _NODES_ACROSS) * (rows + 1.1)
        frames.append(_frame(left, top, rows))
        kinds = Counter(mesh.devices[i].kind for i in on)
        counts = ", ".join(f"{count} × {plain(kind)}" for kind, count in kinds.items())
        titles.append(_title(left, top, f"node {node}: {counts}"))
        for k, i in enumerate(on):
            at[mesh.devices[i].name] = (left + k % _ACROSS, top + k // _ACROSS)
    _add_own_links(figure, mesh, at)
    _add_devices(figure, mesh, at)
    down, across = ceil(len(members) / _NODES_ACROSS), min(len(members), _NODES_ACROSS)
    figure.update_xaxes(visible=False, range=[-0.8, max(across * (_ACROSS + 0.6), 2 * _ACROSS) - 0.4], fixedrange=True)
    figure.update_yaxes(visible=False, range=[down * (rows + 1.1) - 0.4, -1.1], fixedrange=True)
    legend = {"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0}
    pixels = min(868, 28 + round(46 * down * (rows + 1.1)))
    # Set all shapes at once, because plotly checks every shape again for each one that is added.
    layout = {"shapes": frames, "annotations": titles, "legend": legend, "margin": {"r": 8}}
    return finish(figure, pixels, _TOP, _BOTTOM, **layout)


def _frame(left: float, top: float, rows: int) -> dict[str, object]:
    """Return the frame around the devices of a node."""
    return {
        "type": "rect",
        "x0": left - 0.55,
        "x1": left + _ACROSS - 0.45,
        "y0": top - 0.55,
        "y1": top + rows - 0.45,
        "fillcolor": FAINT,
        "line": {"color": QUIET, "width": 1},
        "layer": "below",
    }


def _title(left: float, top: float, text: str) -> dict[str, object]:
    place = {"x": left - 0.5, "y": top - 0.78, "xanchor": "left", "xref": "x", "yref": "y"}
    return {**place, "text": text, "showarrow": False, "font": {"size": 12}}


def _add_own_links(figure: go.Figure, mesh: DeviceMesh, at: dict[str, tuple[float, float]]) -> None:
    if not 0 < len(mesh.connections) <= _MAX_LINK_LINES:
        return
    x: list[float | None] = []
    y: list[float | None] = []
    for each in mesh.connections:
        x += [*(at[name][0] for name in each.between), None]
        y += [*(at[name][1] for name in each.between), None]
    line = {"color": QUIET, "width": 2}
    figure.add_scatter(x=x, y=y, mode="lines", line=line, name="individual links", hoverinfo="skip")


def _add_devices(figure: go.Figure, mesh: DeviceMesh, at: dict[str, tuple[float, float]]) -> None:
    """Add one trace per kind of device."""
    named = len(mesh.devices) <= 64
    for slot, kind in enumerate(mesh.kinds):
        devices = [each for each in mesh.devices if each.kind == kind]
        colour = SERIES_COLOURS[slot % len(SERIES_COLOURS)]
        figure.add_scatter(
            name=plain(kind),
            x=[at[each.name][0] for each in devices],
            y=[at[each.name][1] for each in devices],
            mode="markers+text" if named else "markers",
            text=[plain(each.name, 6) for each in devices],
            textposition="middle center",
            textfont={"size": 11, "color": ink(colour)},
            marker={"symbol": "square", "size": 38 if named else 16, "color": colour},
            hovertext=[_hover_text(each) for each in devices],
            hovertemplate="%{hovertext}<extra></extra>",
        )


def _hover_text(device: Device) -> str:
    """Return a device's kind, memory and rates as hover text."""
    memory = "memory unlimited" if device.memory_capacity is None else show_memory(device.memory_capacity, "B")
    rates = ", ".join(f"{each.flops / 1e12:.4g} TFLOP/s {plain(each.dtype)}" for each in device.flops)
    bandwidth = device.memory_bandwidth
    reach = "" if bandwidth is None else f", {bandwidth / 1e9:.4g} GB/s"
    return f"<b>{plain(device.name)}</b>, {plain(device.kind)}, node {device.node}<br>{memory}{reach}<br>{rates}"

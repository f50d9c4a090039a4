"""What is asked on the Strategies page: a network, a mesh, and ranges of everything that may be chosen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import streamlit as st

from pages.shared.session import session
from pages.shared.words import literal
from tessel_core.costs.meshes import MESHES, find_mesh
from tessel_core.model import DeviceMesh
from tessel_core.strategies import (
    FAMILIES,
    Family,
    Grid,
    Semantics,
    Simulated,
    Size,
    Sweep,
    Value,
    chain_schedulers,
    equal_devices,
    find_family,
    ranges,
    read_range,
    simulate_strategy,
    sweep,
)

MOST_AT_ONCE = 5_000
_UNIFORM = "distir-16"
"""The devices of DistIR's experiments."""

_USUAL = {"layers": "16", "width": "8192", "batch": "1024,8192"}
"""What the sizes of an MLP are at first, so that there is something to choose between."""
_RANGES = {
    "data": ("Replicas D", "1..16x2"),
    "tensor": ("Tensor H", "1..16x2"),
    "pipeline": ("Stages P", "1..16x2"),
    "micro_batches": ("Micro-batches K", "1..32x2"),
}
_FORMATS = ("fp16", "bf16", "fp32")
_HELP = "Numbers and ranges, such as 1,2,3 or 1..8 or 1..64x2, which doubles."
_SIZE_HELP = (
    "Samples of a micro-batch, as numbers and ranges; K is then batch / (D × size), and the field K is not read."
)
_SEMANTICS = {Semantics.DEFAULT: "Streams that overlap", Semantics.DISTIR: "As DistIR counts"}


@dataclass(frozen=True)
class Asked:
    """One sweep, complete."""

    family: str
    mesh: str
    grid: Grid
    semantics: Semantics


def question() -> Asked | None:
    """The form, and what it asks; None where that is too much for a page.  InputError for ranges that make no sense."""
    with st.container(border=True):
        family, mesh, semantics = _what_and_where()
        grid = _ranges(find_family(family))
        room = st.empty()
    devices = len(mesh_named(mesh).devices)
    count, large = len(grid.configurations(find_family(family), devices)), grid.too_large(devices)
    more = f"; {large:,} that take more than its {devices} devices are left out" if large else ""
    room.caption(f"{count:,} configurations on {literal(mesh)}{more}")
    if count > MOST_AT_ONCE:
        told = f"{count:,} configurations are more than the {MOST_AT_ONCE:,} of a page: narrow a range, or use"
        st.info(f"{told} `tessel sweep` in a terminal.", icon=":material/terminal:")
        return None
    return Asked(family, mesh, grid, semantics)


def _what_and_where() -> tuple[str, str, Semantics]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        titles = {name: family.title for name, family in FAMILIES.items()}
        family = st.selectbox("Network", list(titles), format_func=titles.__getitem__, key=_key("family"), width=290)
        meshes = [*MESHES, _UNIFORM]
        mesh = st.selectbox("Mesh", meshes, meshes.index("h200-16"), format_func=_title, key=_key("mesh"))
        semantics = st.segmented_control(
            "Time and memory",
            list(_SEMANTICS),
            default=Semantics.DEFAULT,
            format_func=_SEMANTICS.__getitem__,
            key=_key("semantics"),
            required=True,
            width="content",
        )
    return family, mesh, semantics


def _ranges(family: Family) -> Grid:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        sizes = ranges(**{size.name: asked for size in family.sizes if (asked := _size(family, size)) is not None})
        words = {
            name: st.text_input(label, default, key=_key(name), help=_HELP, width=132)
            for name, (label, default) in _RANGES.items()
        }
        size = st.text_input(
            "Micro-batch size", key=_key("micro_batch_size"), help=_SIZE_HELP, placeholder="from K", width=132
        )
        orders = st.multiselect("Orders", chain_schedulers(), ["pipedream"], key=_key("orders"), width=190)
        recompute = st.toggle("Recomputation too", key=_key("recompute"))
        zero = st.toggle("ZeRO too", key=_key("zero"), help="Replicas that share the optimizer's state (ZeRO-1).")
    degrees = {name: read_range(text, _RANGES[name][0]) for name, text in words.items()}
    return Grid(
        sizes,
        **degrees,
        schedule=tuple(orders),
        recompute=(False, True) if recompute else (False,),
        zero=(False, True) if zero else (False,),
        micro_batch_size=read_range(size, "Micro-batch size"),
    )


def _size(family: Family, size: Size) -> tuple[Value, ...] | None:
    """Values of one size; None where it is left as it is usual."""
    key = _key(f"{family.name}-{size.name}")
    choices = _FORMATS if size.name == "dtype" else size.choices
    if choices:
        return tuple(st.multiselect(size.label, choices, [str(size.default)], key=key, width=150))
    usual = _USUAL[size.name] if family.name == "mlp" else str(size.default or "")
    words = st.text_input(size.label, usual, key=key, help=_HELP, placeholder="as usual", width=132)
    return read_range(words, size.label) if words.strip() or size.default is not None else None


def _key(name: str) -> str:
    return session().key(f"strategies-{name}")


def _title(mesh: str) -> str:
    return "DistIR's: 16 equal devices, 25 Gb/s" if mesh == _UNIFORM else MESHES[mesh].title


@lru_cache(maxsize=32)
def mesh_named(name: str) -> DeviceMesh:
    """One of those that the form offers."""
    return equal_devices(16, 1.4e13, 9e11, 25) if name == _UNIFORM else find_mesh(name)


@lru_cache(maxsize=8)
def swept(asked: Asked) -> Sweep:
    """The answer, kept for the next run of the page."""
    return sweep(find_family(asked.family), asked.grid, mesh_named(asked.mesh), asked.semantics)


@lru_cache(maxsize=8)
def simulated(asked: Asked, number: int) -> Simulated:
    """One configuration of the sweep, operation by operation."""
    each = swept(asked).configurations[number]
    return simulate_strategy(
        find_family(asked.family), each.spec, each.strategy, mesh_named(asked.mesh), asked.semantics
    )

"""Random small meshes for hypothesis, with several nodes and kinds, single and shared links, and unknown rates."""

from __future__ import annotations

from itertools import combinations

from hypothesis import strategies as st

from tessel_core.model import Connection, Device, DeviceMesh, Link, PeakRate

rates = st.floats(1e-6, 1e24)
links = st.builds(Link, rates, st.floats(0, 10))
peaks = st.dictionaries(st.sampled_from(("fp32", "bf16", "fp8")), rates).map(
    lambda found: tuple(PeakRate(dtype, flops) for dtype, flops in found.items())
)


@st.composite
def meshes(draw: st.DrawFn) -> DeviceMesh:
    """Draw a mesh of one to five devices of at most two kinds. Pairs without a shared link have a link of their own."""
    kinds = {kind: (draw(peaks), draw(st.none() | rates)) for kind in ("gpu", "cpu")}
    devices = []
    for i in range(draw(st.integers(1, 5))):
        kind, node = draw(st.sampled_from(sorted(kinds))), draw(st.integers(0, 2))
        devices.append(Device(f"d{i}", kind, node, draw(st.none() | st.integers(0, 2**53)), *kinds[kind]))
    inside, between = draw(st.none() | links), draw(st.none() | links)
    own = []
    for one, other in combinations(devices, 2):
        shared = inside if one.node == other.node else between
        if shared is None or draw(st.booleans()):
            ends = (one.name, other.name) if draw(st.booleans()) else (other.name, one.name)
            own.append(Connection(ends, draw(links)))
    name = draw(st.text(st.characters(categories=("L", "N")), min_size=1, max_size=9))
    return DeviceMesh(name, tuple(devices), tuple(own), inside, between, draw(st.none() | rates))

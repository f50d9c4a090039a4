"""The form of the page Recommend: model, cluster and batch, and ranges that have defaults."""

from __future__ import annotations

from functools import lru_cache
from pathlib import PurePath
from typing import Any

import streamlit as st

from pages.shared.keeping import keeping
from pages.shared.widgets import button, choose, form, labelled
from tessel_core.costs.meshes import find_mesh
from tessel_core.errors import InputError
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.model import DeviceMesh
from tessel_core.strategies.families import Family, Spec, find_family
from tessel_core.strategies.grid import read_range
from tessel_core.strategies.naming import preset_names, preset_network, sizes_said
from tessel_core.strategies.recommendation import Question, SearchRanges
from tessel_core.units import gigabytes, of_gigabytes

FIRST_MODEL, FIRST_BATCH = "llama-3.1-8b", 64
_KINDS = ("h100", "h200", "b200", "a100", "v100")
_COUNTS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048)
_OWN = "My own config.json"


def asked_question() -> tuple[Question, str, bool]:
    """Draw the form, and return its question, the model's name, and whether the button was pressed.

    Raises InputError if a field is invalid.
    """
    with form("recommend"):
        with st.container(horizontal=True, vertical_alignment="bottom"):
            name, family, said = _model()
            mesh = _cluster()
            with labelled(width=140):
                batch = st.number_input("Global batch", 1, 1_000_000, FIRST_BATCH, key="recommend-batch", help=_BATCH)
            sequence = _sequence(said)
            pressed = button("Find the fastest", type="primary", icon=":material/search:")
            keeping()
        with st.expander("Ranges"):
            mesh, ranges = _ranges(mesh)
    given = {**said, "batch": batch, "dtype": "bf16"} | ({} if sequence is None else {"sequence": sequence})
    return Question(family, _spec(family, tuple(given.items())), mesh, ranges), name, pressed


_BATCH = "Samples per step, over all replicas."


@lru_cache(maxsize=64)
def _spec(family: Family, given: tuple[tuple[str, Any], ...]) -> Spec:
    return family.spec(**dict(given))


def _model() -> tuple[str, Family, dict[str, Any]]:
    """Choose a preset or paste a Hugging Face config; return its name, its family and its sizes."""
    titles = {each: each for each in preset_names()} | {_OWN: _OWN}
    with labelled(width=260):
        name = choose("Model", titles, FIRST_MODEL, key="recommend-model")
    if name != _OWN:
        found = preset_network(name)
        assert found is not None, "the choices are presets"
        return name, found[0], dict(found[1])
    with st.popover("Paste the config", icon=":material/content_paste:"):
        text = st.text_area("config.json", key="recommend-config", height=240)
    if not text.strip():
        raise InputError("Model", "paste the config.json of a Hugging Face model")
    family, sizes = _of_config(text)
    return "my-model", find_family(family), sizes


@lru_cache(maxsize=16)
def _of_config(text: str) -> tuple[str, dict[str, Any]]:
    from tessel_core.networks.huggingface import config_network  # imported here, because most people choose a preset

    found = config_network(text.encode(), str(PurePath("config.json")))
    return found.family, sizes_said(found.family, found.spec)


def _cluster() -> DeviceMesh:
    """Choose the kind and number of GPUs; return the mesh, with eight GPUs per node."""
    with labelled(width=120):
        kind = st.selectbox("GPUs", _KINDS, format_func=str.upper, key="recommend-kind")
    with labelled(width=120):
        count = st.selectbox("Number", _COUNTS, key="recommend-count", help="Eight GPUs per node.")
    return _mesh(kind, count)


@lru_cache(maxsize=32)
def _mesh(kind: str, count: int) -> DeviceMesh:
    return find_mesh(f"{kind}-{count}")


def _sequence(said: dict[str, Any]) -> int | None:
    """Choose the tokens per sample; return None for networks without tokens."""
    if "sequence" not in said:
        return None
    usual = min(int(said["sequence"]), 8192)
    with labelled(width=140):
        key = f"recommend-sequence-{usual}"
        return int(st.number_input("Sequence", 1, 10_000_000, usual, key=key, help="Tokens per sample."))


def _ranges(mesh: DeviceMesh) -> tuple[DeviceMesh, SearchRanges]:
    """Choose the memory of each GPU and the values to try; return the mesh and the ranges."""
    room = mesh.devices[0].memory_capacity
    if room is not None:
        most = gigabytes(room)
        name, unit = "Memory of each GPU (GB)", f"recommend-memory-{most}"
        taken = st.slider(name, 1, most, most, key=unit, help="Lower it to see when no strategy fits.")
        mesh = mesh if taken == most else _with_memory(mesh, taken)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        numbers = {
            "tensor": _range("Tensor", "", "all that divide a node"),
            "context": _range("Context", "", "for long samples"),
            "expert": _range("Expert", "", "all that divide"),
            "pipeline": _range("Pipeline", "", "all that divide"),
            "stages_per_device": _range("Stages per device", "1,2,4"),
            "micro_batch_size": _range("Micro-batch size", "1,2,4,8"),
            "zero": _range("ZeRO", "1,2,3"),
        }
        with labelled(width=260):
            recompute = st.multiselect("Recompute", list(map(str, Recompute)), list(map(str, Recompute)))
    if not recompute:
        raise InputError("Recompute", "choose at least one value")
    said: dict[str, Any] = {name: values for name, values in numbers.items() if values}
    return mesh, SearchRanges(**said, recompute=tuple(Recompute(each) for each in recompute))


@lru_cache(maxsize=128)
def _with_memory(mesh: DeviceMesh, taken: int) -> DeviceMesh:
    return mesh.with_capacity(of_gigabytes(taken))


def _range(label: str, usual: str, blank: str = "") -> tuple[int, ...]:
    """Return the numbers of a text field; empty for the default range."""
    key = f"recommend-{label.lower().replace(' ', '-')}"
    text = labelled(width=150).text_input(label, usual, key=key, placeholder=blank, help="Such as 1,2,4 or 1..64x2.")
    return read_range(text, label)

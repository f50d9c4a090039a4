"""Fields for a file, uploaded or by its path, and for the open sizes of an ONNX model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

import streamlit as st
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner import get_script_run_ctx

from pages.shared.session import session, unbroken, workspace
from pages.shared.widgets import labelled, literal
from tessel_core.formats.files import read_path, room_for_uploads
from tessel_core.formats.onnx.sizes import LARGEST_SIZE, all_sizes, asked_sizes
from tessel_core.hosting import MAX_UPLOAD_MB, hosted


@dataclass
class _Fields:
    """State of the file fields of this tab."""

    taken: dict[str, str] = field(default_factory=dict)
    """Streamlit's id of the latest file of each field."""
    typed: str = ""
    """Key of the field into which a path was typed since the last run."""


def file_field(
    key: str, label: str, types: Sequence[str], forget: Callable[[], None], *, wide: bool = False
) -> tuple[bytes, str] | None:
    """Show a file field. Return the bytes and name of a file in the run in which it arrives, otherwise None.

    An ONNX model that is opened by its path is read without its weights. A `wide` field is one line high and reserves
    this height. `forget` is called before a new file is returned. Raises InputError if a path cannot be read.
    """
    state, most = session().of(_Fields), _most_uploaded()
    look: dict[str, Any] = {"max_upload_size": most, "key": key, "label_visibility": "collapsed"}
    with labelled() if wide else nullcontext():
        file = st.file_uploader(label, types, **look)
    st.caption("An uploaded file takes twice its size in the app's memory.")
    path = ""
    if _on_this_machine():
        typed: dict[str, Any] = {"on_change": _type, "args": (key,), "label_visibility": "collapsed"}
        path = st.text_input(
            f"{label} on this machine",
            placeholder="Or a path (weights are not loaded)",
            key=f"{key}-path",
            **typed,
        )
    if state.typed == key:
        state.typed = ""
        forget()
        return read_path(path) if path.strip() else None
    if file is None or file.file_id == state.taken.get(key):
        return None
    state.taken[key] = file.file_id
    forget()
    # Otherwise Streamlit would keep the bytes until the tab closes.
    context = get_script_run_ctx()
    if context is not None and isinstance(context.uploaded_file_mgr, MemoryUploadedFileManager):
        context.uploaded_file_mgr.remove_file(context.session_id, file.file_id)
    return file.getvalue(), file.name


def size_inputs(names: Sequence[str], key: str) -> Mapping[str, int]:
    """Show a number field for each open size of a model, except sums of others. Return all sizes.

    The fields start with the sizes that were used before, or else with likely ones.
    """
    before, said = workspace().placing.sizes, dict[str, int]()
    places = st.columns(2)
    for i, (name, likely) in enumerate(asked_sizes(names).items()):
        now = before.get(name, likely)
        said[name] = places[i % 2].number_input(literal(name), 1, LARGEST_SIZE, now, key=f"{key}-{name}")
    return all_sizes(names, said)


@unbroken
def _type(key: str) -> None:
    session().of(_Fields).typed = key


def _on_this_machine() -> bool:
    """Return whether only users of this machine reach the server. Others must not read its files by their path."""
    address = st.get_option("server.address") or ""
    try:
        own = address == "localhost" or ip_address(address).is_loopback
    except ValueError:
        return False
    return own and not hosted() and "X-Forwarded-For" not in st.context.headers


@st.cache_resource(show_spinner=False)
def _most_uploaded() -> int:
    """Return the upload limit in megabytes. It is cached, because Streamlit empties the field if the limit changes."""
    most = st.get_option("server.maxUploadSize")
    return room_for_uploads(min(most, MAX_UPLOAD_MB + 1) if hosted() else most)

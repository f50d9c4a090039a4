"""The button that hands on the whole trace of a program."""

from __future__ import annotations

import streamlit as st

from pages.shared.markdown import file_name
from pages.shared.program_state import Looked
from tessel_core.exports.simulation_files import SIMULATION_EXPORTS, export_simulation


def trace_button(looked: Looked) -> None:
    """The Chrome trace of all devices, made when it is asked for; where it cannot be made the button says why."""
    export = SIMULATION_EXPORTS["chrome-trace"]
    objection = export.objection(looked.trace)
    st.download_button(
        "Trace",
        lambda: export_simulation(export.name, looked.trace, looked.mesh, by_mesh=looked.by_mesh),
        f"{file_name(looked.trace.program.name)}{export.suffix}",
        export.media_type,
        icon=":material/download:",
        help=f"No file: {objection}." if objection else _ABOUT,
        disabled=bool(objection),
        type="tertiary",
        on_click="ignore",
    )


_ABOUT = "All devices with their streams, memory and transfers, for ui.perfetto.dev and chrome://tracing."

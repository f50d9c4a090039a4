"""Tessel Explorer in the browser: `python -m streamlit run app.py`."""

from pathlib import Path

import streamlit as st

from pages.shared.address import keep_address, restore
from pages.shared.keeping import notices
from pages.shared.look import look
from pages.shared.session import session

st.set_page_config(
    page_title="Tessel Explorer", page_icon=str(Path(__file__).parent.joinpath("docs", "icon.png")), layout="wide"
)
page = st.navigation(
    [
        st.Page("pages/start.py", title="Start", icon=":material/flag:", default=True),
        st.Page("pages/graph.py", title="Operator graph", icon=":material/account_tree:"),
        st.Page("pages/mesh.py", title="Device mesh", icon=":material/hub:"),
        st.Page("pages/placement.py", title="Placement", icon=":material/grid_view:"),
        st.Page("pages/schedule.py", title="Schedule", icon=":material/view_timeline:"),
        st.Page("pages/compare.py", title="Compare", icon=":material/compare_arrows:"),
        st.Page("pages/strategies.py", title="Strategies", icon=":material/scatter_plot:"),
        st.Page("pages/program.py", title="Program", icon=":material/code:"),
    ],
    position="top",
)
look()
restore()
notices()
page.run()
if session().settle():
    st.rerun()
keep_address()

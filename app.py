"""Browser app of Tessel Explorer. Start it with `python -m streamlit run app.py`."""

from pathlib import Path

import streamlit as st

from pages.shared.address import keep_address, restore
from pages.shared.contents import PAGES, arrive, arrived
from pages.shared.keeping import notices
from pages.shared.run_panel import begin_to_look, ended_meanwhile
from pages.shared.session import session
from pages.shared.widgets import look, own_words

st.set_page_config(
    page_title="Tessel Explorer", page_icon=str(Path(__file__).parent.joinpath("docs", "icon.png")), layout="wide"
)
page = st.navigation([each.for_streamlit for each in PAGES], position="top")
look()
arrive(page.url_path or PAGES[0].name)
restore(page.url_path)
notices()
begin_to_look()
page.run()
own_words()
if session().settle() or not arrived() or ended_meanwhile():
    st.rerun()
keep_address()

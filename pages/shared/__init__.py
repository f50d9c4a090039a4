"""Modules that several pages use."""

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager

# Until `st.navigation` has run once, Streamlit treats a folder named pages as a multipage app. The first request of a
# process would then run a page without app.py, if it asks for the page by its address. So run again.
if PagesManager.uses_pages_directory:
    PagesManager.uses_pages_directory = False
    st.rerun()

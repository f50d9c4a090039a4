"""Modules that pages share; with them the only code that knows Streamlit."""

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager

# Streamlit takes a folder called pages for an app of its own until `st.navigation` has run once, and so the first
# request of a process, if it asks for a page by its address, would run that page without app.py.  Begin again.
if PagesManager.uses_pages_directory:
    PagesManager.uses_pages_directory = False
    st.rerun()

"""What pages are put together from; with them the only code that knows Streamlit."""

"""Results as sentences, key numbers and table rows, shared by the app, the command line and reports."""

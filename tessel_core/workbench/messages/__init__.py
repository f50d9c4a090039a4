"""Convert results to sentences, key numbers and table rows, for the app, the command line and reports."""

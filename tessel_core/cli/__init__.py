"""The same verbs from a terminal, a file a verb."""

from tessel_core.cli.command import app, main

__all__ = ["app", "main"]

"""Decks of slides. Each module defines one deck."""

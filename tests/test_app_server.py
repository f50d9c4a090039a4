"""Test the helper that runs the app for browser tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import app_server


def test_a_test_that_fails_leaves_no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_server, "_wait_for", lambda url: None)
    with pytest.raises(ZeroDivisionError), app_server.serve(tmp_path) as (_, server):
        raise ZeroDivisionError
    assert server.poll() is not None

"""Run a command of the terminal in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from tessel_core import cli


class Ended(NamedTuple):
    """Result of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """The JSON document on stdout, which must be one line."""
        assert self.out.count("\n") == 1
        return json.loads(self.out)


Tessel = Callable[..., Ended]


def terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tessel:
    """Return a function that runs `tessel` with arguments in the current folder."""

    def run(*words: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["tessel", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Ended(ended.value.code, said.out, said.err)

    return run

"""Changes that the browser's next message must not break in two."""

from __future__ import annotations

import threading

import streamlit as st
from streamlit.runtime.scriptrunner import RerunException
from streamlit.runtime.scriptrunner_utils.script_requests import RerunData

from pages.shared.session import session, unbroken


def test_a_callback_that_is_broken_off_begins_again_and_the_message_is_answered() -> None:
    messages, done = [RerunData(query_string="first"), RerunData(query_string="second")], []

    @unbroken
    def change(amount: int) -> None:
        if messages:
            raise RerunException(messages.pop(0))
        done.append(amount)

    try:
        change(3)
        answered = ""
    except RerunException as message:
        answered = message.rerun_data.query_string
    assert (done, answered) == ([3], "second")
    change(4)
    assert done == [3, 4], "nothing is raised where nothing came"


def test_a_run_looks_its_session_up_once(monkeypatch) -> None:
    looked = []

    class Counted(dict):
        def setdefault(self, key, value):
            looked.append(key)
            return super().setdefault(key, value)

    monkeypatch.setattr(st, "session_state", Counted())
    same = []
    run = threading.Thread(target=lambda: same.append(session() is session()))
    run.start()
    run.join()
    assert (same, looked) == ([True], ["tessel"])

"""Exceptions and their messages."""

import pickle

from tessel_core.errors import InputError


def test_wrong_input_comes_back_whole_from_another_process() -> None:
    error = pickle.loads(pickle.dumps(InputError("block F0", "lasts 0").within("plan v")))
    assert (type(error), error.where, error.why) == (InputError, "plan v: block F0", "lasts 0")
    assert str(error) == "plan v: block F0: lasts 0"

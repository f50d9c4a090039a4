"""Calls of CP-SAT: models that it may presolve."""

from __future__ import annotations

from ortools.sat.python import cp_model

from tessel_core.control import Control
from tessel_core.cpsat import Effort, Verdict, ask, largest_sum


def test_sums_count_every_term_at_its_largest() -> None:
    model = cp_model.CpModel()
    x, yes = model.new_int_var(-3, 2, "x"), model.new_bool_var("yes")
    model.add(5 * x - 7 * yes <= 4)
    assert largest_sum(model) == 22
    task = model.new_interval_var(x, 3, x + 3, "task")
    model.add_cumulative([task, task], [20, 30], 60)
    assert largest_sum(model) == 50


def test_a_model_without_rules_has_no_sums() -> None:
    model = cp_model.CpModel()
    model.minimize(model.new_int_var(0, 2**40, "x"))
    assert largest_sum(model) == 0


def test_large_sums_are_not_presolved() -> None:
    """A split with all but fifteen rules taken away: presolve of CP-SAT 9.15 proves 5,153,960,754 of it.

    v4 … v30 are free to be 0 but one of v16, v17 and v18, and the second sum is at least that of v15.
    """
    model = cp_model.CpModel()
    largest = model.new_int_var(0, 17_179_869_193, "largest")
    v = [model.new_bool_var(f"v{i}") for i in range(37)]
    for absent in (13, 14):
        model.add(v[absent] == 0)
    model.add_exactly_one(v[13:16])
    model.add_exactly_one(v[16:19])
    for ones, zero in (((4,), 22), ((22, 7), 23), ((23, 10), 24), ((24, 13), 25), ((25,), 17)):
        model.add_bool_or([*(v[one] for one in ones), v[zero].negated()])
    for cause, effect in ((7, 29), (10, 29), (30, 16)):
        model.add_implication(v[cause], v[effect])
    model.add(v[28] - v[29] + v[30] >= 0)
    first = {4: 1227133513, 10: 4908534052, 16: 2454267026, 19: 4908534052, 28: 245426702, 34: 490853405, 36: 490853405}
    second = {6: 12271335131, 15: 4908534052, 18: 12271335131}
    for load in (first, second):
        model.add(sum(cost * v[i] for i, cost in load.items()) <= largest)
    model.minimize(largest)
    answer = ask(model, Effort(10.0, 1, 0, repeatable=True), Control())
    assert answer.verdict is Verdict.PROVED
    assert answer.value(largest) == 4_908_534_052

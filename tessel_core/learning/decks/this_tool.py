"""Slides that tour the app, page by page, with one network."""

from __future__ import annotations

from tessel_core.inspection import IdleSplit
from tessel_core.learning.deck import Deck, Slide
from tessel_core.learning.decks.ideals import lattice, stages
from tessel_core.learning.decks.tessel_idea import best_schedule, found, slow_schedule
from tessel_core.learning.lattice_picture import graph_picture
from tessel_core.learning.solved import drawn, percent
from tessel_core.learning.task import Facts, Titled
from tessel_core.model import MemoryProfile
from tessel_core.networks import build_shape
from tessel_core.units import show_memory, show_time

_COUNT = 8


def _published() -> tuple[Titled, ...]:
    plan = build_shape("split-v")
    titles = {"1f1b": "1F1B", "zb-h1": "ZB-H1", "zb-h2": "ZB-H2"}
    return tuple((title, drawn(name, plan, _COUNT)) for name, title in titles.items())


def _facts() -> Facts:
    best = best_schedule()
    peaks = MemoryProfile.of(best).peaks
    return {
        "slow": show_time(slow_schedule().makespan, "ns"),
        "fast": show_time(best.makespan, "ns"),
        "bound": show_time(found().makespan_bound, "ns"),
        "idle": percent(IdleSplit.of(slow_schedule()).idle),
        "peak": show_memory(max(peaks), "B"),
        "capacity": show_memory(best.plan.devices[0].memory_capacity or 0, "B"),
    }


DECK = Deck(
    name="this-tool",
    place=7,
    title="This tool in three minutes",
    about="A tour of the pages, on one network that does not fit on one device.",
    facts=_facts,
    slides=(
        Slide(
            "The question",
            (
                "A GPT with a million-token vocabulary on four GPUs. With 1F1B they are idle {idle} of the time.",
                "Which schedule is better, and can we prove that it is the best?",
            ),
            lambda: (("1F1B, V-shaped placement", slow_schedule()),),
        ),
        Slide(
            "Placement: which device runs what",
            (
                "Open a network or an ONNX file, choose a mesh and press Place. The best cut appears with its proof "
                "or gap.",
                "Drag an operator to another device to see the cost of the change.",
            ),
            picture=lambda: graph_picture(lattice(), stages()),
        ),
        Slide(
            "Schedule: in which order",
            (
                "Press Search: {fast} in place of {slow}, and the bound proves that no order ends before {bound}.",
                "Click a block to see why it does not start earlier, or idle time to see its cause.",
            ),
            lambda: (("Searched, M-shaped placement", best_schedule()),),
        ),
        Slide(
            "Memory",
            (
                "Every device's memory is drawn against its capacity: here at most {peak} of {capacity}.",
                "Lower the capacity until it breaks, and see which device breaks first, and when.",
            ),
            lambda: (("Searched, M-shaped placement", best_schedule()),),
        ),
        Slide(
            "Compare: side by side",
            (
                "Published and searched schedules on one axis of time, with ratios, curves and a map of who wins.",
                "Change one by hand: the referee names the broken rule, or the cost of the change.",
            ),
            _published,
            memory=False,
        ),
        Slide(
            "Strategies, programs, and a real run",
            (
                "Hundreds of strategies are simulated in a second; a program shows what devices compute and send.",
                "A schedule runs on PyTorch processes, and its measured times are drawn over the predicted ones.",
            ),
            lambda: (("Searched, M-shaped placement", best_schedule()),),
        ),
    ),
)

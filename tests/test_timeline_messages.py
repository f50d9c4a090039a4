"""Texts about a run, an idle interval and a range on the timeline, and where its links lead."""

from __future__ import annotations

import pytest

from tessel_core.inspection import CAUSES, Holes, Obstacles, OrderGraph, Reason, idle_causes
from tessel_core.model import Schedule
from tessel_core.networks import build_shape
from tessel_core.scheduling import solve_schedule
from tessel_core.units import show_time
from tessel_core.workbench.messages.timeline import About, about, find_place, savings


def drawn(shape: str = "v-shape", scheduler: str = "1f1b") -> Schedule:
    found = solve_schedule(scheduler, build_shape(shape), 12).drawable
    assert found is not None
    return found


def text_of(said: About) -> dict[str, str]:
    """Return each line as text, with runs written as block.micro-batch."""
    parts = {
        name: [each if isinstance(each, str) else f"{each[0]}.{each[1]}" for each in line] for name, line in said.lines
    }
    return {name: "".join(each) for name, each in parts.items()}


def test_the_chain_of_a_run_leads_back_to_the_beginning() -> None:
    schedule = drawn()
    obstacles = Obstacles.of(schedule)
    critical = int(schedule.end.argmax())
    for row in range(0, len(schedule.start), 7):
        if row == critical:
            continue
        block, micro_batch = int(schedule.block[row]), int(schedule.micro_batch[row])
        said = about(schedule, f"{block}.{micro_batch}")
        assert said.chain[0] == (block, micro_batch)
        assert len(said.chain) == len(obstacles.chain(row))
        assert ("could start earlier" in text_of(said)["Why not earlier"]) == (
            obstacles.chain(row)[-1].obstacle.reason is Reason.COULD
        )


def test_the_first_run_starts_at_time_0_and_the_last_has_no_slack() -> None:
    schedule = drawn()
    first, last = text_of(about(schedule, "0.0")), int(schedule.end.argmax())
    assert first["Why not earlier"] == "It starts at time 0."
    said = text_of(about(schedule, f"{schedule.block[last]}.{schedule.micro_batch[last]}"))
    assert said["Critical path"].endswith("back to time 0.")
    assert said["Slack"].startswith("None")


def test_what_faster_blocks_save_is_told_of_each_and_of_all_up_to_so_many_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    schedule = drawn()
    saved = savings(schedule)
    assert saved == OrderGraph.of(schedule).savings()
    for b, block in enumerate(schedule.plan.blocks):
        said = text_of(about(schedule, f"{b}.0"))[f"All \u2068{block.name}\u2069 10% faster"]
        assert show_time(float(saved[b]), "step") in said
    monkeypatch.setattr("tessel_core.workbench.messages.timeline._MAX_TIMED_RUNS", len(schedule.start) - 1)
    assert savings.__wrapped__(schedule) == ()


def test_a_hole_names_its_causes_and_what_could_fill_it() -> None:
    schedule = drawn("m-shape", "1f1b+")
    for hole in Holes.of(schedule).on(0):
        said = text_of(about(schedule, f"g0.{hole.start}"))
        assert set(said) == {"Cause", "What could fill it"}
        for piece in hole.pieces:
            assert str(piece.cause) in said["Cause"].lower()


def test_a_range_says_how_much_is_idle_and_why() -> None:
    schedule = drawn()
    said = text_of(about(schedule, f"r0-{schedule.makespan}"))["Idle by cause"]
    shares = idle_causes(schedule).shares
    assert said.startswith(f"{float(sum(shares.values())):.1%} of the time")
    assert all((str(cause) in said) == bool(shares[cause]) for cause in CAUSES)


@pytest.mark.parametrize("place", ["", "x", "99.0", "0.99", "g9.0", "g0.999999", "r5-5", "r0-999999", "3", "3.4.5"])
def test_of_a_place_that_is_not_there_nothing_is_said(place: str) -> None:
    assert about(drawn(), place) == About()


@pytest.mark.parametrize(
    ("text", "place"),
    [("F2 of 5", "2.5"), ("b0 3", "7.3"), ("peak of gpu0", "r"), ("longest idle time on gpu3", "g3.")],
)
def test_what_is_asked_for_is_found(text: str, place: str) -> None:
    schedule = drawn()
    found = find_place(schedule, text)
    assert found.place.startswith(place)
    assert not found.complaint
    assert about(schedule, found.place).lines


@pytest.mark.parametrize("text", ["F9 of 1", "F2 of 99", "longest hole on gpu9", "who are you"])
def test_what_is_not_there_is_a_sentence(text: str) -> None:
    found = find_place(drawn(), text)
    assert not found.place
    assert found.complaint

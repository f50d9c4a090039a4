"""Stored answers and workspaces: they are found again unchanged, and the referee checks them again."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from helpers.seeds import examples
from helpers.simulator import runs_of
from helpers.workspaces import configs, works
from hypothesis import given, settings, strategies

from pages.parts.start import opening
from tessel_core.control import Control
from tessel_core.errors import InputError
from tessel_core.formats import workspace_text
from tessel_core.formats.answer_file import answer_text
from tessel_core.formats.tables import tables_of
from tessel_core.model import MAKESPAN, PERIOD, STOPPED, MicroBatchPlan, ScheduleReport, Status
from tessel_core.networks import build_shape
from tessel_core.options import Option, changed_options, config_from, option, search_options
from tessel_core.samples import load_sample
from tessel_core.scheduling import SCHEDULERS, Question, evaluate_file, find_scheduler, solve_schedule
from tessel_core.workbench.answers import ANSWER_FOLDER, digest, recall, solve_and_keep
from tessel_core.workbench.messages.schedule import key_numbers, verdict
from tessel_core.workbench.store import Store, open_store
from tessel_core.workbench.workspace import Workspace, workspace_file, workspace_of

ANSWER_MAKER = Path(__file__).resolve().parent.parent / "tools" / "make_answers.py"
PLAN = build_shape("m-shape")
TIGHT = build_shape("v-shape").with_capacity(3)


def question(
    plan: MicroBatchPlan = PLAN, scheduler: str = "tessel", micro_batches: int = 16, **options: Any
) -> Question:
    return Question(scheduler, plan, micro_batches, find_scheduler(scheduler).config(**options))


FILED_UNDER = {
    "tessel": "86a847d9e7e9316b03c2768ee191f0552b122468f364bee98d295158880cebb6",
    "time-optimal": "9fd5c90c8076a0a29674c54532f2205320462b330adeba15ed9c6b1c924500c9",
    "list-scheduling": "d12f23c360e323cb872d1219f0c5a6601a9e481bf6e3b0071806e6e2d1e3472a",
    "gpipe": "aa3b9a51e7b35779b9f50035089e85539dc5fab25705509d92480c84395e9124",
}
"""Digests of questions in stores of users: 5 micro-batches of the sample m-shape-4 with default options."""


@pytest.mark.parametrize("scheduler", FILED_UNDER)
def test_answers_that_were_filed_are_found_for_ever(scheduler: str) -> None:
    """A renamed field of a plan or config must keep its old key (`Option.key`, `Codec.under`)."""
    assert digest(question(load_sample("m-shape-4"), scheduler, 5)) == FILED_UNDER[scheduler]


def test_an_option_keeps_its_key_when_its_field_is_renamed() -> None:
    @dataclass(frozen=True)
    class Before:
        seed: int = option(3, Option("Seed", "", 0, 9))

    @dataclass(frozen=True)
    class After:
        first_seed: int = option(3, Option("Seed", "", 0, 9, key="seed"))

    assert search_options(After(7)) == search_options(Before(7)) == {"seed": 7}
    assert changed_options(After(7)) == changed_options(Before(7))
    assert config_from(After, changed_options(Before(7))) == After(7)
    with pytest.raises(InputError, match="first_seed: is no option here, choose from seed"):
        config_from(After, {"first_seed": 7})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = open_store(tmp_path)
    yield found
    found.database.close()


@pytest.mark.parametrize(
    ("scheduler", "plan"),
    [
        (name, plan)
        for plan in (PLAN, TIGHT, TIGHT.with_capacity(0))
        for name, scheduler in SCHEDULERS.items()
        if not scheduler.why_not(plan, 6)
    ],
)
def test_every_answer_comes_back_as_it_was(store: Store, scheduler: str, plan: MicroBatchPlan) -> None:
    asked = question(plan, scheduler)
    assert recall(asked, store.answers) is None
    report = solve_and_keep(asked, Control(), store.answers)
    again = recall(asked, store.answers)
    assert again is not None
    assert again.config == report.config
    assert again.history == report.history
    assert verdict(again, plan) == verdict(report, plan)
    assert (again.drawable is None) == (report.drawable is None)
    if report.drawable is not None and again.drawable is not None:
        assert key_numbers(again) == key_numbers(report)
        assert runs_of(again.drawable) == runs_of(report.drawable)


def apart(asked: Question) -> ScheduleReport:
    """Return an answer with two schedules, in which the one that keeps the repetend is longer than the shortest."""
    report = asked.solve(Control())
    assert report.repetend is not None
    return replace(report, steady=report.repetend.expand(asked.micro_batches), solution=report.shortest)


@pytest.mark.parametrize("objective", [MAKESPAN, PERIOD])
def test_an_answer_comes_back_with_both_schedules_and_answers_both_objectives(store: Store, objective: str) -> None:
    asked = question(objective=objective)
    report = asked.answered_by(apart(question()))
    store.answers.keep(digest(asked), answer_text(report))
    for each in (MAKESPAN, PERIOD):
        again, told = recall(question(objective=each), store.answers), report.about(each)
        assert again is not None
        assert again.config == question(objective=each).config
        assert (again.status, again.objective_name, again.objective, again.bound) == (
            *(told.status, each, told.objective, told.bound),
        )
        assert again.history == report.history
        for one, other in zip(again.schedules, told.schedules, strict=True):
            assert (runs_of(one), one.repetend) == (runs_of(other), other.repetend)
        assert again.steady_costs == report.steady_costs
        assert verdict(again, PLAN) == verdict(told, PLAN)


def as_before_two_objectives(text: str) -> dict[str, Any]:
    """Return a stored answer in the format that was used before a search had two objectives."""
    document = json.loads(text)
    del document["shortest"], document["steady"]
    for news in document["history"]:
        del news["by"]
    return document


@pytest.mark.parametrize("micro_batches", [1, 16])
def test_an_answer_from_before_there_were_two_objectives_still_opens(store: Store, micro_batches: int) -> None:
    asked = question(micro_batches=micro_batches)
    report = asked.solve(Control())
    old = as_before_two_objectives(answer_text(report.about(PERIOD)))
    store.answers.keep(digest(asked), json.dumps(old))
    for each in (asked, asked.about(PERIOD)):
        again = recall(each, store.answers)
        assert again is not None
        assert again.objective_name == each.objective
        assert (again.makespan, again.period) == (report.makespan, report.period)
        assert again.repetend_makespan == report.repetend_makespan


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("steady", "runs", 0, "start"), 10_000),
        (("steady", "micro_batches"), 9),
        (("steady", "plan", "name"), "another"),
        (("steady",), "schedule"),
        (("steady",), "shortest"),
        (("steady",), 5),
        (("shortest", "runs", 0, "start"), 10_000),
        (("steady", "repetend"), None),
        (("history", 0, "by"), 3),
    ],
)
def test_neither_of_two_schedules_is_trusted(store: Store, path: tuple[str | int, ...], value: Any) -> None:
    asked = question()
    report = apart(asked)
    shortest = replace(report.shortest, repetend=None)
    for spoken in (MAKESPAN, PERIOD):
        document = json.loads(answer_text(replace(report, shortest=shortest, solution=shortest).about(spoken)))
        store.answers.keep(digest(asked), json.dumps(document))
        assert recall(asked, store.answers) is not None
        place = document
        for step in path[:-1]:
            place = place[step] if place[step] != "schedule" else document["schedule"]
        place[path[-1]] = value
        store.answers.keep(digest(asked), json.dumps(document))
        if spoken == MAKESPAN or value != "schedule":
            assert recall(asked, store.answers) is None


def test_the_answer_that_ships_is_what_a_search_proves(store: Store) -> None:
    asked = runpy.run_path(str(ANSWER_MAKER))["first_question"]()
    shipped, found = recall(asked, store.answers), asked.solve(Control())
    assert shipped is not None
    assert asked == opening._searched()
    assert [path.stem for path in ANSWER_FOLDER.iterdir()] == [digest(asked)]
    for objective in (MAKESPAN, PERIOD):
        mine, again = shipped.about(objective), found.about(objective)
        assert (mine.status, mine.objective, mine.bound) == (again.status, again.objective, again.bound)
        assert mine.status is Status.PROVED_OPTIMAL


def test_an_answer_belongs_to_its_question_alone(store: Store) -> None:
    asked = question(scheduler="1f1b+")
    solve_and_keep(asked, Control(), store.answers)
    others = [
        question(scheduler="gpipe"),
        question(scheduler="1f1b+", micro_batches=7),
        question(PLAN.with_capacity(7), "1f1b+"),
        question(replace(PLAN, name="another"), "1f1b+"),
    ]
    assert recall(asked, store.answers) is not None
    assert [recall(other, store.answers) for other in others] == [None] * len(others)
    digests = {digest(each) for each in [asked, *others, question(), question(seed=1), question(max_unroll=2)]}
    assert len(digests) == len(others) + 4
    assert digest(question(objective=PERIOD)) == digest(question()), "one search answers both"


def test_a_question_has_the_same_digest_in_every_process() -> None:
    code = (
        "from tessel_core.workbench.answers import digest\nfrom tessel_core.networks import build_shape\n"
        "from tessel_core.scheduling import Question, find_scheduler\n"
        "print(digest(Question('tessel', build_shape('m-shape'), 16, find_scheduler('tessel').config())))"
    )
    environment = {"PYTHONPATH": str(Path(__file__).parents[1]), "PYTHONHASHSEED": "7", "PATH": ""}
    found = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == digest(question())


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schedule", "runs", 0, "start"), 10_000),
        (("schedule", "runs", 0, "micro_batch"), 5),
        (("schedule", "repetend", "period"), 7),
        (("repetend", "first_start", 0, 0), 10_000),
        (("repetend", "period"), 5),
        (("objective",), "5"),
        (("bound",), "7"),
        (("scheduler",), "gpipe"),
        (("fits",), "yes"),
        (("version",), 2),
    ],
)
def test_an_answer_that_was_tampered_with_is_not_shown(
    store: Store, path: tuple[str | int, ...], value: Any, caplog: pytest.LogCaptureFixture
) -> None:
    asked = question()
    document = json.loads(answer_text(asked.solve(Control())))
    store.answers.keep(digest(asked), json.dumps(document))
    assert recall(asked, store.answers) is not None
    place = document
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    store.answers.keep(digest(asked), json.dumps(document))
    assert recall(asked, store.answers) is None
    assert "a stored answer" in caplog.text


def test_a_search_that_was_stopped_replaces_no_answer(store: Store) -> None:
    asked = question()
    stopped = Control()
    stopped.cancel()
    first = solve_and_keep(asked, stopped, store.answers)
    assert first.status is not Status.PROVED_OPTIMAL
    again = recall(asked, store.answers)
    assert again is not None, "better than nothing"
    assert again.status is first.status
    solve_and_keep(asked, Control(), store.answers)
    solve_and_keep(asked, stopped, store.answers)
    again = recall(asked, store.answers)
    assert again is not None
    assert again.status is Status.PROVED_OPTIMAL


def test_an_answer_that_cannot_be_kept_is_given_all_the_same(store: Store) -> None:
    with store.database.reading() as connection:
        connection.execute("PRAGMA max_page_count = 1")
    large = question(build_shape("v-shape"), "1f1b", 5_000)
    assert solve_and_keep(large, Control(), store.answers).solution is not None
    assert "the disk is full" in store.trouble


# Workspaces


@given(works())
@settings(max_examples=examples(100), deadline=None)
def test_a_workspace_comes_out_of_its_file_as_it_went_in(work: Workspace) -> None:
    assert workspace_of(workspace_file(work), work.token) == work


def test_another_objective_is_asked_of_all_that_one_search_answers() -> None:
    report = apart(question())
    work = Workspace("token", "a name", "somewhere", "", PLAN, tables_of(PLAN), asked=question(), opened=report)
    steady = work.about(PERIOD)
    assert (steady.question.objective, steady.asked, steady.opened.solution) == (
        *(PERIOD, question(objective=PERIOD), report.steady),
    )
    assert steady.question.search == work.question.search
    back = steady.about(MAKESPAN)
    assert (back.question, back.asked, back.opened) == (work.question, work.asked, report)
    published = work.asking("1f1b+", 16, find_scheduler("1f1b+").config())
    assert published.about(PERIOD).question == published.question
    assert published.about(PERIOD).asked == question(objective=PERIOD), "what the page shows until the next search"


def test_another_search_adds_nothing_to_what_is_published_or_proved_for_both_objectives() -> None:
    proved, published = question().solve(Control()), question(TIGHT, "sequential")
    assert question().settled_by(proved)
    assert not question().settled_by(replace(proved, period_bound=proved.period_bound / 2))
    assert not question().settled_by(replace(proved, reason=STOPPED))
    found = published.solve(Control())
    assert found.status is Status.FEASIBLE
    assert published.settled_by(found)
    assert not question(TIGHT, "list-scheduling").settled_by(found)
    assert question(TIGHT, "gpipe").settled_by(question(TIGHT, "gpipe").solve(Control())), "it does not fit"


def test_an_opened_schedule_is_judged_again() -> None:
    report = solve_schedule("1f1b+", PLAN, 6)
    work = Workspace("token", "a name", "somewhere", "", PLAN, tables_of(PLAN), opened=report)
    file = workspace_file(work)
    again = workspace_of(file, "token").opened
    assert again is not None
    assert file.opened is not None
    assert key_numbers(again) == key_numbers(evaluate_file(file.opened))
    late = file.opened.schedule
    wrong = replace(file.opened, schedule=replace(late, start=late.start * 0))
    with pytest.raises(InputError, match="rule: "):
        workspace_of(replace(file, opened=wrong), "token")


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"scheduler": "magic"}, "scheduler: 'magic' is not known"),
        ({"options": {"magic": {}}}, "options: 'magic' is not known"),
        (
            {"options": {"tessel": {"speed": 3}}},
            "options.tessel: speed: is no option here, choose from objective, max_unroll",
        ),
        (
            {"options": {"tessel": {"max_unroll": 99}}},
            "options.tessel: Largest repeat: must be between 1 and 16",
        ),
        ({"options": {"tessel": {"max_unroll": 1.5}}}, "options.tessel: Largest repeat: must be of type int"),
        (
            {"options": {"tessel": {"max_unroll": True}}},
            "options.tessel: Largest repeat: must be of type int",
        ),
        ({"options": {"gpipe": {"seed": 1}}}, "options.gpipe: seed: is no option here, choose from none"),
    ],
)
def test_what_this_program_does_not_know_is_told(change: dict[str, Any], complaint: str) -> None:
    file = workspace_file(Workspace("t", "n", "", "", PLAN, tables_of(PLAN)))
    file = replace(file, rest={**file.rest, **change})
    assert workspace_text(file), "as a file it is well-formed"
    with pytest.raises(InputError) as error:
        workspace_of(file, "token")
    assert str(error.value).startswith(complaint)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@given(data=strategies.data())
@settings(max_examples=25, deadline=None)
def test_options_survive_as_text(scheduler: str, data: strategies.DataObject) -> None:
    """An address contains only the options that differ from their defaults."""
    config = data.draw(configs(scheduler))
    spelled = {name: str(value) for name, value in changed_options(config).items()}
    assert config_from(find_scheduler(scheduler).config, spelled) == config

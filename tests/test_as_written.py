"""PyTorch CSV files timed with their sends and receives. The times are compared with longest paths by networkx."""

from __future__ import annotations

import random
from pathlib import Path

import networkx as nx
import pytest
from helpers.terminal import Tessel, terminal

from tessel_core.deadlock.as_written import AsWritten, timed_as_written
from tessel_core.errors import InputError
from tessel_core.formats.pytorch_csv import PyTorchCsv, StageAction, read_pytorch_csv
from tessel_core.formats.pytorch_schedule import csv_schedule
from tessel_core.inspection import idle_causes
from tessel_core.model.receives import Receives, ReceiveWait


@pytest.fixture
def tessel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tessel:
    monkeypatch.chdir(tmp_path)
    return terminal(monkeypatch, capsys)


STEPS = {"F": 1, "B": 2, "I": 1, "W": 1}


def read(text: str) -> PyTorchCsv:
    return read_pytorch_csv(text.encode(), "order.csv")


def timed(text: str, receives: str) -> AsWritten:
    return timed_as_written(read(text), Receives(receives))


def one_f_one_b(ranks: int, stages: int, micro_batches: int) -> list[list[str]]:
    """Return the computing actions of 1F1B for each rank, with the stages of a loop."""
    rows = []
    for rank in range(ranks):
        mine = range(rank, stages, ranks)
        forward = [f"{s}F{m}" for first in range(0, micro_batches, ranks) for s in mine
                   for m in range(first, min(first + ranks, micro_batches))]  # fmt: skip
        backward = [f"{s}B{m}" for first in range(0, micro_batches, ranks) for s in reversed(mine)
                    for m in range(first, min(first + ranks, micro_batches))]  # fmt: skip
        ahead = min(len(forward), stages // ranks * ranks + ranks - 1 - rank)
        row = forward[:ahead]
        for each in range(len(forward)):
            row += [*forward[ahead + each : ahead + each + 1], backward[each]]
        rows.append(row)
    return rows


def with_messages(rows: list[list[str]], stages: int, rng: random.Random, early: int) -> str:
    """Add a send after each action whose output is sent. Each receive stands up to `early` places before its action."""
    said = []
    for row in rows:
        line = list[tuple[float, str]]()
        for place, text in enumerate(row):
            stage, kind, m = (
                int(text[: text.index("FB"["B" in text])]),
                "FB"["B" in text],
                text.split("FB"["B" in text])[1],
            )
            line.append((place, text))
            if (kind == "F" and stage + 1 < stages) or (kind == "B" and stage):
                line.append((place + 0.2, f"{stage}SEND_{kind}{m}"))
            if (kind == "F" and stage) or (kind == "B" and stage + 1 < stages):
                line.append((place - 0.3 - rng.randint(0, early), f"{stage}RECV_{kind}{m}"))
        said.append(",".join(text for _, text in sorted(line)))
    return "\n".join(said) + "\n"


def longest_paths(found: PyTorchCsv, receives: str) -> dict[StageAction, int] | None:
    """Return the end of each computing action, or None if the file hangs."""
    graph = nx.DiGraph()
    last = max(found.rank_of)
    for row in found.rows:
        before = None
        for cell in row:
            (action,) = cell.actions
            ahead = action.kind.startswith("RECV") and receives == "stream"
            graph.add_node(action)
            if before is not None:
                graph.add_edge(before, action, lasts=STEPS.get(before.kind, 0))
            if not ahead:
                before = action
    for action in list(graph):
        stage, kind, m = action
        step = 1 if kind.endswith("F") else -1
        if kind.startswith("RECV"):
            graph.add_edge(StageAction(stage - step, f"SEND_{kind[-1]}", m), action, lasts=0)
        if kind in "FB" and 0 <= stage - step <= last:
            graph.add_edge(StageAction(stage, f"RECV_{kind}", m), action, lasts=0)
    if not nx.is_directed_acyclic_graph(graph):
        return None
    ends = dict[StageAction, int]()
    for action in nx.topological_sort(graph):
        begins = max(
            (ends[p] - STEPS.get(p.kind, 0) + graph[p][action]["lasts"] for p in graph.pred[action]), default=0
        )
        ends[action] = begins + STEPS.get(action.kind, 0)
    return {action: end for action, end in ends.items() if action.kind in STEPS}


EARLY = "0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F0,1RECV_F1,1F0,1F1\n"


def test_a_receive_ahead_of_its_use_holds_up_the_computing_only_in_line():
    stream, line = timed(EARLY, "stream"), timed(EARLY, "in-order")
    assert stream.schedule.starts.tolist() == [[0, 1], [1, 2]]
    assert stream.waits == (ReceiveWait(1, "1RECV_F0", "1F0", 0, 1),)
    assert line.schedule.starts.tolist() == [[0, 2], [1, 3]]
    assert line.waits == (ReceiveWait(1, "1RECV_F0", "1F0", 0, 1), ReceiveWait(1, "1RECV_F1", "1F0", 1, 2))


@pytest.mark.parametrize("receives", ["stream", "in-order"])
@pytest.mark.parametrize(("ranks", "stages", "micro_batches"), [(2, 2, 4), (4, 4, 6), (2, 4, 4), (4, 8, 8), (3, 6, 9)])
def test_starts_are_the_longest_paths_through_the_file(ranks: int, stages: int, micro_batches: int, receives: str):
    rng, hung = random.Random(7), 0
    for early in (0, 0, 1, 2, 3, 5):
        found = read(with_messages(one_f_one_b(ranks, stages, micro_batches), stages, rng, early))
        wanted = longest_paths(found, receives)
        if wanted is None:
            hung += 1
            with pytest.raises(InputError, match="waits forever"):
                timed_as_written(found, Receives(receives))
            continue
        made = timed_as_written(found, Receives(receives))
        plan, ends = made.schedule.plan, made.schedule.starts + [b.duration for b in made.schedule.plan.blocks]
        for (stage, kind, m), end in wanted.items():
            assert ends[m or 0, plan.block_index(f"{kind}{stage}")] == end
        assert explained(made)
    assert receives == "in-order" or not hung


def explained(made: AsWritten) -> bool:
    """Return whether the reported waits equal the idle intervals of each rank before its last run."""
    waiting = set[tuple[int, int]]()
    for wait in made.waits:
        waiting |= {(wait.rank, moment) for moment in range(wait.start, wait.end) if wait.before}
    causes = idle_causes(made.schedule)
    holes = zip(causes.device.tolist(), causes.start.tolist(), causes.end.tolist(), causes.cause.tolist(), strict=True)
    idle = {(d, moment) for d, start, end, cause in holes if cause != 1 for moment in range(start, end)}
    return waiting == idle


@pytest.mark.parametrize(("ranks", "stages", "micro_batches"), [(4, 4, 8), (2, 6, 4)])
def test_a_file_without_messages_runs_as_before_where_receives_have_streams(
    ranks: int, stages: int, micro_batches: int
):
    found = read("\n".join(",".join(row) for row in one_f_one_b(ranks, stages, micro_batches)) + "\n")
    made = timed_as_written(found, Receives.STREAM)
    assert made.schedule.starts.tolist() == csv_schedule(found).starts.tolist()
    assert explained(made)


def test_a_front_loaded_receive_lengthens_interleaved_warmup():
    """PyTorch issue 188833: without streams, warmup waits for receives of later chunks."""
    rows = one_f_one_b(4, 8, 8)
    early = with_messages(rows, 8, random.Random(1), 0).splitlines()
    for rank, line in enumerate(early):
        cells = line.split(",")
        later = f"{rank + 4}RECV_F0"
        cells.remove(later)
        cells.insert(cells.index(f"{rank}F1"), later)
        early[rank] = ",".join(cells)
    text = "\n".join(early) + "\n"
    assert timed(text, "stream").schedule.makespan == csv_schedule(read(text)).makespan
    line = timed(text, "in-order")
    assert line.schedule.makespan > timed(text, "stream").schedule.makespan
    assert ReceiveWait(0, "4RECV_F0", "0F1", 1, 4) in line.waits


@pytest.mark.parametrize(
    ("text", "receives", "why"),
    [
        (
            "0F0,0SEND_F0\n1F0\n",
            "stream",
            "rank 1: cell '1F0' needs F0 of micro-batch 0, which the rank never receives",
        ),
        (
            "0F0\n1RECV_F0,1F0\n",
            "stream",
            "row 2, column 2: cell '1F0' waits forever for the send of F0 by rank 0, which never comes",
        ),
        (
            "0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n",
            "in-order",
            "row 2, column 1: cell '1RECV_F0' waits forever for the send of rank 0, which waits in turn, with receives "
            "in line with computing",
        ),
    ],
)
def test_tensors_that_never_come_are_named(text: str, receives: str, why: str):
    with pytest.raises(InputError) as error:
        timed(text, receives)
    assert why in str(error.value)


def test_a_hang_of_receives_in_line_goes_through_on_streams():
    text = "0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"
    assert timed(text, "stream").schedule.makespan == 6


def test_a_wait_for_a_send_holds_up_its_rank_until_the_receive_is_posted():
    text = "0F0,0SEND_F0,0F1,0SEND_F1,0WAIT_SEND_F1,0F2,0SEND_F2\n"
    text += "1RECV_F0,1F0,2F0,1RECV_F1,1F1,2F1,1RECV_F2,1F2,2F2\n"
    for receives in Receives:
        made = timed(text, receives)
        assert made.schedule.starts[:, 0].tolist() == [0, 1, 3]
        assert made.waits == (ReceiveWait(0, "0WAIT_SEND_F1", "0F2", 2, 3), ReceiveWait(1, "1RECV_F0", "1F0", 0, 1))


def test_the_command_times_a_file_either_way_and_names_the_receives(tessel: Tessel) -> None:
    Path("early.csv").write_text(EARLY, encoding="utf-8")
    ended = tessel("schedule", "early.csv", "--receives", "in-order", "--json", "--out", "line.json")
    assert (ended.document["makespan"], ended.document["receives"]) == (4, "in-order")
    assert ended.document["receive_waits"][1] == {
        "rank": 1, "receive": "1RECV_F1", "before": "1F0", "start": 1, "end": 2
    }  # fmt: skip
    assert tessel("check", "line.json").out == "line.json: valid\n"
    ended = tessel("schedule", "early.csv", "--receives", "stream")
    assert "rank 1 waits 1 step at 0 for 1RECV_F0, and 1F0 after it" in ended.out
    tessel("samples", "v-shape-4", "--out", "plan.json")
    for words, complaint in (
        (["plan.json", "--receives", "stream"], "plan.json: is a plan, but --receives needs a PyTorch CSV file"),
        (["early.csv", "--receives", "line"], "'line' is not one of 'stream', 'in-order'"),
        (["early.csv", "--receives", "stream", "--memory", "3"], "--memory: has no effect with --receives"),
        (["early.csv", "--receives", "stream", "--time-limit", "3"], "--time-limit: has no effect with --receives"),
    ):
        ended = tessel("schedule", *words)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert complaint in ended.err

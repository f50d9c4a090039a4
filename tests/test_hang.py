"""The hang certificate agrees with brute force over all orders. Derived orders need no buffers on any channel."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from helpers.channels import Everything, meet, receive, send, some_lists, wait
from helpers.programs import spread
from helpers.schedules import any_schedule
from helpers.seeds import one_in, seeds
from helpers.terminal import Tessel, terminal
from helpers.training import gpt_training
from test_networks import tiny

from tessel_core.deadlock import (
    Action,
    ActionKind,
    Channels,
    HangCertificate,
    RankActions,
    Verdict,
    check_channels,
    csv_actions,
    program_actions,
    schedule_actions,
)
from tessel_core.errors import InputError
from tessel_core.formats import schedule_text
from tessel_core.formats.pytorch_csv import read_pytorch_csv
from tessel_core.ir.project import project
from tessel_core.ir.text import program_text
from tessel_core.ir.transforms.context import ContextMethod
from tessel_core.ir.transforms.update import AdamUpdate, ShardedOptimizer
from tessel_core.model import Schedule
from tessel_core.networks.gpt import GptSpec
from tessel_core.networks.programs.plan_program import schedule_program
from tessel_core.registry import NoOptions
from tessel_core.samples import list_samples, load_sample
from tessel_core.scheduling import SCHEDULERS, solve_schedule
from tessel_core.strategies.families import NetworkWork, find_family
from tessel_core.strategies.strategy import Strategy, build_program

HANGS = (Verdict.CIRCLE, Verdict.NEVER_SATISFIED)
PUBLISHED = [name for name, scheduler in SCHEDULERS.items() if scheduler.config is NoOptions]


@pytest.fixture
def tessel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Tessel:
    monkeypatch.chdir(tmp_path)
    return terminal(monkeypatch, capsys)


def certified(lists: list[list[Action]], channels: Channels, capacity: int) -> HangCertificate:
    return check_channels(dict(enumerate(lists)), channels, capacity)


@pytest.mark.parametrize("channels", Channels)
@pytest.mark.parametrize("capacity", [0, 1, 2])
def test_it_says_what_trying_every_order_says(channels: Channels, capacity: int) -> None:
    said = Counter[Verdict]()
    for seed in range(300):
        lists = some_lists(random.Random(seed))
        every, found = Everything(lists, channels, capacity), certified(lists, channels, capacity)
        said[found.verdict] += 1
        stuck = [state for state in every.ends if not every.finished(state)]
        assert (found.verdict in HANGS) == bool(stuck), (seed, found)
        if not stuck:
            assert (found.verdict is Verdict.MISMATCHED) == any(wrong for _, _, wrong in every.ends), (seed, found)
            continue
        fewest = {every.fewest_that_wait(state) for state in stuck}
        assert (len(found.places) if found.verdict is Verdict.CIRCLE else 0) in fewest, (seed, found)
        assert all(lists[rank][position].text == text for rank, position, text in found.places)
    assert set(said) == set(Verdict)


def crossing(times: int) -> list[list[Action]]:
    """Return two ranks that send before they receive, and a third rank between them."""
    one, other, third = list[Action](), list[Action](), list[Action]()
    for i in range(times):
        one += [send(1, f"c{i}"), receive(2, f"e{i}"), receive(1, f"b{i}")]
        other += [send(0, f"b{i}"), receive(0, f"c{i}"), send(2, f"d{i}")]
        third += [receive(1, f"d{i}"), send(0, f"e{i}")]
    return [one, other, third]


def test_a_race_for_a_place_in_the_queue_of_a_pair_is_tried_both_ways() -> None:
    lists = crossing(1)
    ends = Everything(lists, Channels.PAIR, 2).ends
    assert {Everything(lists, Channels.PAIR, 2).finished(state) for state in ends} == {True, False}
    found = certified(lists, Channels.PAIR, 2)
    assert (found.verdict, {place.rank for place in found.places}) == (Verdict.CIRCLE, {0, 1, 2})
    assert certified(lists, Channels.DIRECTION, 2).proceeds
    assert certified(both_send_first(4), Channels.PAIR, 8).proceeds
    assert certified(both_send_first(4), Channels.PAIR, 7).verdict is Verdict.CIRCLE


def both_send_first(times: int) -> list[list[Action]]:
    """Return two ranks that both send several times, and then receive as often."""
    lists = list[list[Action]]()
    for other, mine, theirs in ((1, "a", "b"), (0, "b", "a")):
        sends = [send(other, f"{mine}{i}") for i in range(times)]
        lists.append([*sends, *(receive(other, f"{theirs}{i}") for i in range(times))])
    return lists


def test_races_in_too_many_orders_are_answered_as_without_room_which_is_said() -> None:
    found = certified(both_send_first(9), Channels.PAIR, 18)
    assert (found.verdict, found.capacity, len(found.places)) == (Verdict.CIRCLE, 0, 2)
    assert "no sends outstanding; with 18, ranks can send in too many different orders to check" in found.sentence


def proceeds_everywhere(actions: RankActions) -> None:
    for channels in Channels:
        for capacity in (0, 1):
            assert check_channels(actions, channels, capacity).proceeds


def follows(schedule: Schedule, actions: RankActions) -> None:
    """Return whether each device runs in its order, after its receives and before its sends."""
    plan = schedule.plan
    pairs = list(zip(schedule.block.tolist(), schedule.micro_batch.tolist(), strict=True))
    for device, mine in actions.items():
        runs = [f"{plan.blocks[b].name} #{m}" for b, m in pairs if device in plan.blocks[b].devices]
        computing = [each.text for each in mine if each.kind in (ActionKind.LOCAL, ActionKind.COLLECTIVE)]
        assert computing == runs
        at = {each.text: i for i, each in enumerate(mine)}
        exchanged = Counter[tuple[ActionKind, object]]()
        for i, each in enumerate(mine):
            if each.kind in (ActionKind.SEND, ActionKind.RECEIVE):
                arc, m = each.tensor  # type: ignore[misc]
                before, after, _ = plan.arcs[arc]
                exchanged[each.kind, each.tensor] += 1
                if each.kind is ActionKind.SEND:
                    assert at[f"{plan.blocks[before].name} #{m}"] < i
                else:
                    assert i < at[f"{plan.blocks[after].name} #{m}"]
        wanted = {
            (ActionKind.RECEIVE, (arc, m)): 1
            for arc, (before, after, _) in enumerate(plan.arcs)
            for m in range(schedule.micro_batches)
            if device in plan.blocks[after].devices and device not in plan.blocks[before].devices
        }
        assert {key: count for key, count in exchanged.items() if key[0] is ActionKind.RECEIVE} == wanted


@pytest.mark.parametrize("name", one_in(3, [sample.name for sample in list_samples()]))
def test_orders_of_samples_need_no_room_on_any_channels(name: str) -> None:
    plan = load_sample(name)
    for scheduler in PUBLISHED:
        if not SCHEDULERS[scheduler].why_not(plan, 4):
            schedule = solve_schedule(scheduler, plan, 4).drawable
            assert schedule is not None
            actions = schedule_actions(schedule)
            follows(schedule, actions)
            proceeds_everywhere(actions)


@pytest.mark.parametrize("seed", seeds(200))
def test_orders_of_any_schedule_and_of_its_program_need_no_room(seed: int) -> None:
    schedule = any_schedule(seed)
    actions = schedule_actions(schedule)
    follows(schedule, actions)
    proceeds_everywhere(actions)
    proceeds_everywhere(program_actions(schedule_program(schedule)))


@pytest.mark.parametrize("degrees", [(2, 1, 1, 1), (2, 2, 2, 2), (3, 2, 3, 4)])
def test_programs_need_no_room(degrees: tuple[int, int, int, int]) -> None:
    network = gpt_training(GptSpec(layers=3, hidden=12, heads=6, vocabulary=7, sequence=4, batch=12))
    program = spread(network, *degrees, step=ShardedOptimizer(AdamUpdate())).program
    actions = program_actions(program)
    assert [len(mine) for mine in actions.values()] == [len(rank.ops) for rank in project(program).values()]
    assert {each.kind for mine in actions.values() for each in mine} >= {ActionKind.LOCAL, ActionKind.COLLECTIVE}
    sends = sum(op.kind == "send" for op in program.ops)
    for kind in (ActionKind.SEND, ActionKind.RECEIVE):
        assert sum(each.kind is kind for mine in actions.values() for each in mine) == sends
    proceeds_everywhere(actions)


@pytest.mark.parametrize(
    ("family", "strategy", "kinds"),
    [
        ("llama", Strategy(1, 2, 2, 2, context=2, sequence_parallel=True), ("shift", "allgather", "reduce_scatter")),
        ("llama", Strategy(2, context=2, context_method=ContextMethod.ALL_TO_ALL, zero=3), ("alltoall",)),
        ("moe", Strategy(4, expert=2, zero=2), ("exchange_choice", "exchange_rows", "return_rows")),
    ],
    ids=str,
)
def test_cut_sequences_and_experts_need_no_room(family: str, strategy: Strategy, kinds: tuple[str, ...]) -> None:
    """If a rank omits its last collective, the others wait there."""
    changes = {"experts": 4, "heads": 4} if family == "moe" else {"style": "llama", "window": 0}
    work = NetworkWork(family, tiny(family, micro_batch=8, sequence=8, vocabulary=8, **changes))
    actions = program_actions(build_program(find_family(family), work, strategy).program)
    together = [each for each in actions[1] if each.kind is ActionKind.COLLECTIVE]
    assert set(kinds) <= {each.text.partition(" ")[0] for each in together}
    proceeds_everywhere(actions)
    last = next(each for each in reversed(together) if each.text.partition(" ")[0] in kinds)
    short = {**actions, 1: [each for each in actions[1] if each is not last]}
    found = check_channels(short, Channels.PAIR)
    assert found.verdict in HANGS


# Two hangs of torch's runtime.

ONE_QUEUE_OF_A_RANK = """\
0F0,0SEND_F0,2RECV_F0,2F0,0F1,0SEND_F1,2SEND_F0
1RECV_F0,1F0,1SEND_F0,4RECV_F0,4F0,1RECV_F1,1F1
3RECV_F0,3F0,3SEND_F0
"""
"""As in pytorch #195760: rank 0 sends to rank 1 before it sends to rank 2, but rank 1 needs rank 2's output first."""

EARLY_RECEIVE = """\
0F0,0SEND_F0,0F1,2RECV_F0,2F0,0SEND_F1,2SEND_F0
1RECV_F0,1F0,1RECV_F1,1SEND_F0,1F1,3RECV_F0,3F0
"""
"""As in pytorch #172668: rank 1 takes its next activation before it sends the one that rank 0 needs first."""

BOTH_SEND = """\
0F0,0SEND_F0,0F1,0SEND_F1,2RECV_F0,2F0
1RECV_F0,1F0,1SEND_F0,1RECV_F1,1F1
"""
"""As with the first repair of pytorch #172668: both ranks send before they receive."""


def said(text: str, channels: Channels, capacity: int) -> HangCertificate:
    return check_channels(csv_actions(read_pytorch_csv(text.encode(), "torch.csv")), channels, capacity)


def test_the_known_hangs_are_found_with_their_shortest_circles() -> None:
    for capacity in (1, 2):
        found = said(ONE_QUEUE_OF_A_RANK, Channels.RANK, capacity)
        assert found.verdict is Verdict.CIRCLE
        assert found.places == ((1, 3, "4RECV_F0"), (2, 0, "3RECV_F0"))
        assert found.sentence == (
            "circle: rank 1 at position 3 (4RECV_F0) waits for rank 2 at position 0 (3RECV_F0), which waits for the "
            f"first (one queue for each rank's sends, {capacity} send{'s' * (capacity > 1)} outstanding)"
        )
        for channels in (Channels.PAIR, Channels.DIRECTION, Channels.EDGE):
            assert said(ONE_QUEUE_OF_A_RANK, channels, capacity).proceeds
    for channels in Channels:
        for capacity in (0, 1, 5):
            assert said(EARLY_RECEIVE, channels, capacity).places == ((0, 3, "2RECV_F0"), (1, 2, "1RECV_F1"))
        assert said(BOTH_SEND, channels, 0).places == ((0, 3, "0SEND_F1"), (1, 2, "1SEND_F0"))
    assert [said(BOTH_SEND, channels, 1).proceeds for channels in Channels] == [True, False, True, True]


def test_a_wrong_order_on_one_queue_of_a_pair_swaps_tensors() -> None:
    text = "0F0,0SEND_F0,0F1,0SEND_F1\n1RECV_F1,1F1,1RECV_F0,1F0\n"
    for channels in Channels:
        found = said(text, channels, 2)
        assert found.verdict is Verdict.MISMATCHED
        assert found.places == ((1, 0, "1RECV_F1"), (0, 1, "0SEND_F0"))


def test_what_is_never_met_is_named() -> None:
    lonely = said("0F0\n1RECV_F0,1F0\n", Channels.EDGE, 0)
    assert (lonely.verdict, lonely.places) == (Verdict.NEVER_SATISFIED, ((1, 0, "1RECV_F0"),))
    for capacity in (0, 3):
        unread = said("0F0,0SEND_F0\n1F1\n", Channels.RANK, capacity)
        assert (unread.verdict, unread.places) == (Verdict.NEVER_SATISFIED, ((0, 1, "0SEND_F0"),))
    apart = certified([[meet(0, 1)], [meet(0, 1), meet(0, 1)]], Channels.PAIR, 0)
    assert (apart.verdict, apart.places[0][:2]) == (Verdict.NEVER_SATISFIED, (1, 1))
    assert "rank 0 never joins" in apart.sentence
    turned = [meet(0, 1), meet(1, 2), meet(2, 0)]
    circle = certified([[turned[2], turned[0]], [turned[0], turned[1]], [turned[1], turned[2]]], Channels.PAIR, 0)
    assert (circle.verdict, len(circle.places)) == (Verdict.CIRCLE, 3)


def test_a_wait_for_a_send_waits_for_its_receive() -> None:
    text = "0F0,0SEND_F0,0WAIT_SEND_F0,2RECV_F0,2F0\n1RECV_F0,1F0,1SEND_F0,1WAIT_SEND_F0\n"
    assert said(text, Channels.DIRECTION, 1).proceeds
    hung = [[send(1, "x"), wait(1, "x"), receive(1, "y")], [send(0, "y"), wait(0, "y"), receive(0, "x")]]
    assert len(certified(hung, Channels.DIRECTION, 4).places) == 2
    with pytest.raises(InputError, match=r"row 1, column 1: cell '0WAIT_SEND_F0' waits for a send that comes later"):
        said("0WAIT_SEND_F0,0F0,0SEND_F0\n1RECV_F0,1F0\n", Channels.EDGE, 0)


def test_computing_alone_gets_transfers_that_need_no_room() -> None:
    zero_bubble = "0F0,0F1,,0I0,0W0\n1F0,3F0,(1F1;3B0)OVERLAP_F_B,1I0,1W0\n,2F0,,2B0\n"
    actions = csv_actions(read_pytorch_csv(zero_bubble.encode(), "z.csv"))
    assert [each.text for each in actions[2] if each.kind is ActionKind.LOCAL] == ["2F0", "2B0"]
    with pytest.raises(InputError, match=r"row 2, column 2: cell '3B0' needs 3F0 earlier on its rank"):
        csv_actions(read_pytorch_csv(zero_bubble.replace("3F0,(1F1;3B0)", "(1F1;3B0)").encode(), "z.csv"))
    one_f_one_b = "0F0,0F1,0F2,0B0,0B1,0B2\n1F0,1F1,1B0,1F2,1B1,1B2\n2F0,2B0,2F1,2B1,2F2,2B2\n"
    for text in (",,\n,\n", one_f_one_b, "0F0,5F0,5B0,0B0\n1F0,4F0,4B0,1B0\n2F0,3F0,3B0,2B0\n"):
        proceeds_everywhere(csv_actions(read_pytorch_csv(text.encode(), "one.csv")))
    found = said("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", Channels.DIRECTION, 3)
    assert found.places == ((0, 1, "receive of 1B0 from rank 1"), (1, 0, "receive of 0F1 from rank 0"))
    unsent = said("0F0,0B0\n1F0,1B0\n2F0\n", Channels.DIRECTION, 3)
    assert (unsent.verdict, unsent.places) == (Verdict.NEVER_SATISFIED, ((1, 2, "receive of 2B0 from rank 2"),))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "the file: is empty, it needs a row for each rank"),
        ("0F0\n\n1F0\n", "row 2: is blank; each row is a rank, and the row of an idle rank needs at least a comma"),
        ("0F0,0F1x\n", "row 1, column 2: cell '0F1x' is not a PyTorch action, such as 0F2, 1B0 or 1RECV_F3"),
        ("0F0\n1F\n", "row 2, column 1: cell '1F' has no micro-batch"),
        ("0F0,(0F1;0B0)OVERLAP\n", "row 1, column 2: cell '(0F1;0B0)OVERLAP' is not a PyTorch action"),
        (
            "(0F1;0RECV_B0)OVERLAP_F_B\n",
            "row 1, column 1: cell '(0F1;0RECV_B0)OVERLAP_F_B' overlaps actions that do not compute",
        ),
        ("0F0,0F0\n", "row 1, column 2: cell '0F0' repeats the action in row 1, column 1"),
        ("0F0\n0F1\n", "row 2, column 1: cell '0F1': stage 0 is already on rank 0 (row 1), and a stage has one rank"),
        ("0F0,0SEND_F0\n", "row 1, column 2: cell '0SEND_F0' exchanges a tensor with stage 1, which no rank has"),
        ("1F0\n", "row 1, column 1: cell '1F0' needs 0F0, and no rank has stage 0"),
        ('0F0,"0F1\n', "the file: is not CSV: unexpected end of data"),
        ("\udcff", "the file: is not text"),
    ],
)
def test_a_damaged_file_is_named_by_row_column_and_cell(text: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        csv_actions(read_pytorch_csv(text.encode("utf-8", "surrogateescape"), "bad.csv"))
    assert str(caught.value).removeprefix("bad.csv: ").startswith(complaint)


def test_check_says_whether_files_can_hang(tessel: Tessel) -> None:
    report = solve_schedule("1f1b+", load_sample("m-shape-4"), 4)
    schedule = report.drawable
    assert schedule is not None
    Path("m.json").write_text(schedule_text(schedule, report), encoding="utf-8")
    Path("m.txt").write_text(program_text(schedule_program(schedule)), encoding="utf-8")
    Path("torch.csv").write_text(BOTH_SEND, encoding="utf-8")
    Path("plain").write_text("0F0\n1F0\n", encoding="utf-8")
    for channels in Channels:
        ended = tessel("check", "m.json", "m.txt", "plain", "--channels", channels)
        assert (ended.code, ended.out.count(": valid\n  proceeds: ")) == (0, 3)
    ended = tessel("check", "m.json", "torch.csv", "--channels", "pair", "--capacity", "1", "--json")
    good, bad = ended.document
    assert ended.code == 1
    assert (good["verdict"], good["actions"], good["capacity"]) == ("proceeds", [], 1)
    assert (bad["valid"], bad["verdict"], bad["channels"]) == (True, "circle", "pair")
    assert bad["actions"] == [{"rank": 0, "position": 3, "action": "0SEND_F1"}]
    assert bad["sentence"].startswith("circle: rank ")
    ended = tessel("check", "torch.csv", "m.txt")
    said = "only the actions in its cells were checked; add --channels to check whether its sends and receives can hang"
    assert (ended.code, ended.out) == (0, f"torch.csv: valid\n  {said}\nm.txt: valid\n")
    Path("hang.csv").write_text("0F0,0RECV_B0,0SEND_F0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n", encoding="utf-8")
    ended = tessel("export", "hang.csv", "--to", "pytorch-csv")
    assert (ended.code, ended.out) == (0, "0F0,0B0\n1F0,1B0\n")
    kept, hangs = ended.err.splitlines()
    assert kept.endswith("; the order of computing is kept, sends and receives are not")
    assert hangs.startswith("note: hang.csv: Ranks that follow this file wait forever. Circle: rank 0 at position 1")
    for words, complaint in (
        (["m.json", "--capacity", "1"], "--capacity: is the capacity of queues, so it needs --channels"),
        (["m.json", "--channels", "pair", "--capacity", "-1"], "--capacity: must be at least 0, got -1"),
        (["m.json", "--channels", "tube"], "'tube' is not one of 'rank', 'pair', 'direction', 'edge'"),
        (["plan.json", "--channels", "rank"], "plan.json: --channels: needs a schedule, a program or a PyTorch CSV"),
    ):
        tessel("samples", "m-shape-4", "--out", "plan.json")
        ended = tessel("check", *words)
        assert (ended.code, ended.err.count("\n")) == (2, 1)
        assert complaint in ended.err


@pytest.mark.parametrize(
    ("text", "where", "why"),
    [
        (
            "0SEND_F0,0F0\n1RECV_F0,1F0\n",
            "row 1, column 1",
            "'0SEND_F0' sends a tensor that is made later, at row 1, column 2",
        ),
        (
            "0F0,0SEND_F0\n1F0,1RECV_F0\n",
            "row 2, column 2",
            "receives a tensor that was used earlier, at row 2, column 1",
        ),
    ],
)
def test_what_is_sent_before_it_is_made_or_received_too_late_is_refused(text: str, where: str, why: str) -> None:
    with pytest.raises(InputError, match=f"{where}: .*{why}"):
        said(text, Channels.PAIR, 1)

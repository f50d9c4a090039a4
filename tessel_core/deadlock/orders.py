"""Order of actions on each rank, derived from schedules, programs and PyTorch CSV files.

The computations (runs) and transfers of a schedule become events in time. A run happens at its start. A transfer
happens at the end of the run that makes its tensor, before the runs that start at that time. Each rank executes its
events in this global order, so sends and receives never wait in a cycle. This holds for all kinds of channels and with
capacity 0.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tessel_core.deadlock.actions import Action, ActionKind, RankActions
from tessel_core.errors import InputError
from tessel_core.formats.pytorch_csv import Cell, PyTorchCsv, StageAction, cell_place
from tessel_core.ir.program import Program
from tessel_core.ir.project import RankOp, project
from tessel_core.model import Schedule


class _Run(NamedTuple):
    """One block of one micro-batch, with its ranks and its start."""

    ranks: tuple[int, ...]
    start: int
    text: str
    tensor: Hashable


class _Transfer(NamedTuple):
    """Transfer of a tensor from one rank to another.

    `made` is the end of the run that makes the tensor, or None if there is none.  `taken` is the start of the run that
    needs it.
    """

    text: str
    tensor: Hashable
    edge: Hashable
    source: int
    to: int
    made: int | None
    taken: int


def schedule_actions(schedule: Schedule) -> RankActions:
    """Return the runs, sends and receives of each device in order.

    The tensor of a run is (block, micro-batch), that of a transfer is (dependency, micro-batch).  A block on several
    devices is a collective.  Each device of a successor that did not make the tensor itself receives it by a send of
    its own; the devices of the block take turns as senders.

    A schedule that breaks the rules may need a tensor before it is made.  Its receive still comes before the run that
    needs it, so that the check reports the hang.
    """
    plan = schedule.plan
    rows = {
        (b, m): row
        for row, (b, m) in enumerate(zip(schedule.block.tolist(), schedule.micro_batch.tolist(), strict=True))
    }
    starts, ends = schedule.start.tolist(), schedule.end.tolist()
    names = [block.name for block in plan.blocks]

    def transfers() -> Iterator[_Transfer]:
        """Yield one transfer per dependency, micro-batch and device that needs a tensor made on other devices."""
        for arc, (before, after, _) in enumerate(plan.arcs):
            makers = plan.blocks[before].devices
            takers = [d for d in plan.blocks[after].devices if d not in makers]
            hops = [(makers[i % len(makers)], to) for i, to in enumerate(takers)]
            for m in range(schedule.micro_batches if hops else 0):
                making, taking = rows.get((before, m)), rows.get((after, m))
                if taking is None:
                    continue
                text, made = f"{names[before]} #{m} for {names[after]}", None if making is None else ends[making]
                for source, to in hops:
                    yield _Transfer(text, (arc, m), arc, source, to, made, starts[taking])

    runs = (_Run(plan.blocks[b].devices, starts[row], f"{names[b]} #{m}", (b, m)) for (b, m), row in rows.items())
    return _in_time(range(len(plan.devices)), runs, transfers())


def program_actions(program: Program) -> RankActions:
    """Return one action per operation of each device; positions are those of `project`."""
    return {rank: [_of_operation(op, program) for op in part.ops] for rank, part in project(program).items()}


def csv_actions(file: PyTorchCsv) -> RankActions:
    """Return the actions of each rank.

    If the file contains sends and receives, each cell is an action.  Otherwise they are inserted between the cells.

    Raises InputError with row and column if a tensor has no receiver or sender, or if a stage computes before its
    inputs are made on the same rank.
    """
    return _as_written(file) if file.communicates else _with_transfers(file)


def _in_time(ranks: Iterable[int], runs: Iterable[_Run], transfers: Iterable[_Transfer]) -> RankActions:
    """Sort all events by time, and return the actions of each rank. Transfers come before runs of the same time."""
    events = list[tuple[int, int, int, int, Action]]()
    for number, run in enumerate(runs):
        together = len(run.ranks) > 1
        kind = ActionKind.COLLECTIVE if together else ActionKind.LOCAL
        action = Action(kind, run.text, run.ranks, run.tensor)
        events += [(run.start, 1, number, rank, action) for rank in run.ranks]
    for number, each in enumerate(transfers):
        receive, key = f"receive of {each.text} from rank {each.source}", (each.tensor, each.edge)
        at = each.taken if each.made is None else min(each.made, each.taken)
        events.append((at, 0, number, each.to, Action(ActionKind.RECEIVE, receive, (each.source,), *key)))
        if each.made is not None:
            send = Action(ActionKind.SEND, f"send of {each.text} to rank {each.to}", (each.to,), *key)
            events.append((each.made, 0, number, each.source, send))
    events.sort(key=lambda event: event[:4])
    actions: dict[int, list[Action]] = {rank: [] for rank in ranks}
    for _, _, _, rank, action in events:
        actions[rank].append(action)
    return actions


def _of_operation(each: RankOp, program: Program) -> Action:
    """Return the action of an operation: local on one device, a send or receive for a transfer, else a collective."""
    op, group = each.op, each.group or program.devices_of(each.op)
    if len(group) == 1:
        return Action(ActionKind.LOCAL, op.kind)
    where = f" in stage {op.tag.stage}" if op.tag.stage is not None else ""
    where += f" for micro-batch {op.tag.micro_batch}" if op.tag.micro_batch is not None else ""
    if op.kind not in ("send", "delay"):
        return Action(ActionKind.COLLECTIVE, f"{op.kind}{where}", group, each.place)
    name, edge = program.value_name(op.inputs[0]), (op.tag.stage, op.tag.phase)
    if each.inputs:
        return Action(ActionKind.SEND, f"send of %{name}{where} to rank {group[-1]}", group[-1:], op.outputs, edge)
    return Action(ActionKind.RECEIVE, f"receive of %{name}{where} from rank {group[0]}", group[:1], op.outputs, edge)


def _as_written(file: PyTorchCsv) -> RankActions:
    lists: dict[int, list[Action]] = {rank: [] for rank in range(len(file.rows))}
    sent = set[StageAction]()
    _check_made_before_sent(file)
    for row, cells in enumerate(file.rows):
        for column, cell in enumerate(cells):
            action = _of_cell(file, cell, row, column)
            if action.kind is ActionKind.SEND:
                sent.add(cell.actions[0])
            elif action.kind is ActionKind.WAIT and _sending(cell.actions[0]) not in sent:
                why = f"cell '{cell.text}' waits for a send that comes later or never"
                raise InputError(cell_place(row, column), why)
            lists[row].append(action)
    return lists


def _check_made_before_sent(file: PyTorchCsv) -> None:
    """Raise InputError if a rank sends a tensor before it makes it, or receives one after it used it."""
    computed = {action: (row, column) for row, column, action in file.each()}
    for row, cells in enumerate(file.rows):
        for column, cell in enumerate(cells):
            stage, kind, m = cell.actions[0] if len(cell.actions) == 1 else (0, "", None)
            sends = kind.startswith("SEND_")
            if not sends and not kind.startswith("RECV_"):
                continue
            kinds = ("F",) if kind.endswith("F") else ("B", "I")
            places = (computed.get(StageAction(stage, each, m)) for each in kinds)
            place = next((each for each in places if each is not None and each[0] == row), None)
            if place is not None and (place[1] > column) is sends:
                what = "sends a tensor that is made later" if sends else "receives a tensor that was used earlier"
                why = f"cell '{cell.text}' {what}, at {cell_place(*place)}"
                raise InputError(cell_place(row, column), why)


def _sending(waiting: StageAction) -> StageAction:
    return waiting._replace(kind=waiting.kind.removeprefix("WAIT_"))


_WAY = {"SEND_F": 1, "WAIT_SEND_F": 1, "RECV_F": -1, "SEND_B": -1, "WAIT_SEND_B": -1, "RECV_B": 1}
"""For each kind of action, the difference between the number of the other stage and that of its own stage."""


def _of_cell(file: PyTorchCsv, cell: Cell, row: int, column: int) -> Action:
    if len(cell.actions) != 1 or cell.actions[0].kind not in _WAY:
        return Action(ActionKind.LOCAL, cell.text or "idle")
    stage, kind, micro_batch = cell.actions[0]
    other = stage + _WAY[kind]
    if other not in file.rank_of:
        why = f"cell '{cell.text}' exchanges a tensor with stage {other}, which no rank has"
        raise InputError(cell_place(row, column), why)
    maker, direction = other if kind.startswith("RECV") else stage, kind[-1]
    role = ActionKind.RECEIVE if kind.startswith("RECV") else ActionKind.WAIT if "WAIT" in kind else ActionKind.SEND
    return Action(role, cell.text, (file.rank_of[other],), (maker, direction, micro_batch), (maker, direction))


@dataclass(slots=True)
class _Cell:
    """A cell of the file and its start time. Every cell takes one unit of time."""

    row: int
    text: str
    needs: list[tuple[StageAction, int]]
    """Actions that make the tensors of this cell, each with its rank.  They may be missing in the file."""
    start: int = -1


def _with_transfers(file: PyTorchCsv) -> RankActions:
    """Insert transfers between the cells.

    For their order, each cell takes one unit of time and starts as early as possible.
    """
    computed = {action: (row, column) for row, column, action in file.each()}
    cells = [
        [_Cell(row, cell.text, list(_needs(file, cell, row, column, computed))) for column, cell in enumerate(cells)]
        for row, cells in enumerate(file.rows)
    ]
    _start(cells, computed)
    transfers = list[_Transfer]()
    for row in cells:
        for cell in row:
            for need, rank in cell.needs:
                if rank != cell.row:
                    place = computed.get(need)
                    made = None if place is None else cells[place[0]][place[1]].start + 1
                    edge = need.stage, "F" if need.kind == "F" else "B"
                    transfers.append(_Transfer(str(need), need, edge, rank, cell.row, made, cell.start))
    runs = (_Run((cell.row,), cell.start, cell.text, cell.text) for row in cells for cell in row if cell.text)
    return _in_time(range(len(cells)), runs, transfers)


def _start(cells: Sequence[Sequence[_Cell]], computed: dict[StageAction, tuple[int, int]]) -> None:
    """Set the start of each cell.  Cells that wait for each other in a cycle start last, in the order of their row."""
    at, free = [0] * len(cells), [0] * len(cells)
    awaited = defaultdict[StageAction, list[int]](list)
    ready = deque(range(len(cells)))
    done = dict[StageAction, int]()
    makes = defaultdict[tuple[int, int], list[StageAction]](list)
    for action, place in computed.items():
        makes[place].append(action)
    while ready:
        row = ready.popleft()
        while at[row] < len(cells[row]):
            cell = cells[row][at[row]]
            missing = next((need for need, _ in cell.needs if need in computed and need not in done), None)
            if missing is not None:
                awaited[missing].append(row)
                break
            cell.start = max([free[row], *(done[need] for need, _ in cell.needs if need in done)])
            free[row] = cell.start + 1
            for action in makes[row, at[row]]:
                done[action] = free[row]
                ready.extend(awaited.pop(action, ()))
            at[row] += 1
    last = max(free)
    for row, stuck in enumerate(cells):
        for i, cell in enumerate(stuck[at[row] :]):
            cell.start = last + 2 * i


def _needs(
    file: PyTorchCsv, cell: Cell, row: int, column: int, computed: dict[StageAction, tuple[int, int]]
) -> Iterator[tuple[StageAction, int]]:
    """Yield the actions on whose results a cell depends, each with its rank.

    These are the forward of the stage before, the backward of the stage after, and earlier actions of the same stage.
    """
    last = max(file.rank_of, default=0)
    for stage, kind, m in cell.actions:
        needs = list[StageAction]()
        if kind == "F" and stage:
            needs.append(StageAction(stage - 1, "F", m))
        elif kind == "W":
            needs.append(StageAction(stage, "I", m))
        elif kind in "IB":
            needs.append(StageAction(stage, "F", m))
            if stage < last:
                input_gradient = StageAction(stage + 1, "I", m)
                needs.append(input_gradient if input_gradient in computed else StageAction(stage + 1, "B", m))
        for need in needs:
            rank = file.rank_of.get(need.stage)
            if rank is None or (rank == row and computed.get(need, (row, column)) >= (row, column)):
                why = f", and no rank has stage {need.stage}" if rank is None else " earlier on its rank"
                raise InputError(cell_place(row, column), f"cell '{StageAction(stage, kind, m)}' needs {need}{why}")
            yield need, rank

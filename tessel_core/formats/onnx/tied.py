"""Weights that several operators use: held once where those can share a device, else once at each of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tessel_core.model.checks import topological_order
from tessel_core.model.operator_graph import joined

Links = list[tuple[int, int]]

_MOST_TRIED = 200
"""Weights that are tried, the first ones of the file; each costs a walk over the graph."""


def tie(successors: Sequence[Sequence[int]], links: Links, users: Mapping[str, Sequence[int]]) -> tuple[str, ...]:
    """The weights whose users can share a device, in the order of `users`; their links are added to `links`.

    Parameters
    ----------
    successors
        Per operator, those that take its output.
    links
        Pairs that share a device already.
    users
        Per weight, the operators that use it, at least two.
    """
    found = list[str]()
    for name in list(users)[:_MOST_TRIED]:
        members = users[name]
        if _returns(successors, members):
            continue
        more = [(members[0], other) for other in members[1:]]
        if _is_acyclic(successors, links + more):
            links += more
            found.append(name)
    return tuple(found)


def _returns(successors: Sequence[Sequence[int]], members: Sequence[int]) -> bool:
    """Whether a path leaves the members and comes back to them."""
    inside = set(members)
    waiting = [after for member in members for after in successors[member] if after not in inside]
    seen = set(waiting)
    while waiting:
        for after in successors[waiting.pop()]:
            if after in inside:
                return True
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return False


def _is_acyclic(successors: Sequence[Sequence[int]], links: Links) -> bool:
    """Whether no tensor flows in a circle between the sets that `links` join."""
    groups = joined(len(successors), links)
    group_of = {member: group for group, members in enumerate(groups) for member in members}
    before: list[set[int]] = [set() for _ in groups]
    for source, targets in enumerate(successors):
        for target in targets:
            if group_of[source] != group_of[target]:
                before[group_of[target]].add(group_of[source])
    return len(topological_order([tuple(each) for each in before])) == len(groups)

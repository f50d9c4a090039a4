"""Options that `tessel simulate`, `run` and `sweep` share: mesh, semantics of costs, and sizes of a network family."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from tessel_core.cli.graph import asked_config
from tessel_core.cli.output import option, print_notes
from tessel_core.cli.problem import find_mesh_file
from tessel_core.costs.meshes import uniform_mesh
from tessel_core.errors import InputError, find
from tessel_core.model import DeviceMesh
from tessel_core.model.mesh import MAX_DEVICES
from tessel_core.strategies.families import FAMILIES, Family, find_family
from tessel_core.strategies.naming import preset_network, sizes_said
from tessel_core.strategies.strategy import BUCKET_BYTES, Semantics, equal_devices

_DISTIR_MESH = "1.4e13,9e11,25"
"""Devices of DistIR's experiments, the default mesh of `--compat distir`."""
_DEVICES_PER_NODE = 8
Kind = TypeVar("Kind", bound=StrEnum)

BUCKET_MIB = BUCKET_BYTES / 2**20
Bucket = Annotated[
    float,
    typer.Option(
        metavar="MIB",
        min=0,
        help="Bucket of gradients that replicas reduce together, in MiB. Larger buckets pay less latency and start "
        "later. 0 reduces each gradient on its own.",
    ),
]


def bucket_bytes(mebibytes: float) -> int:
    """Convert `--bucket` to bytes. Raises InputError unless it is finite."""
    if not math.isfinite(mebibytes):
        raise InputError("--bucket", f"must be a finite number of MiB, got {mebibytes}")
    return round(mebibytes * 2**20)


def named_family(what: str) -> tuple[Family, Mapping[str, Any]] | None:
    """Return the family of a name, preset or Hugging Face config, with the sizes that preset or config fix.

    None for another name or file.  Raises InputError where `config_network` does.
    """
    if what in FAMILIES:
        return find_family(what), {}
    known = preset_network(what)
    if known is not None:
        return known
    config = asked_config(what) if Path(what).is_file() else None
    return None if config is None else (find_family(config.family), sizes_said(config.family, config.spec))


def assignments(given: Iterable[str]) -> dict[str, str]:
    """Parse `--set NAME=VALUE` into values by name. Raises InputError for text of another form."""
    found = dict[str, str]()
    for each in given:
        name, mark, value = each.partition("=")
        if not mark:
            raise InputError("--set", f"must be NAME=VALUE, got {each[:80]!r}")
        found[name.strip().replace("-", "_")] = value.strip()
    return found


def number_or_text(value: Any) -> Any:
    """Convert text to a number if it is one, and leave other values as they are."""
    for kind in (int, float) if isinstance(value, str) else ():
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def listed(text: str) -> tuple[str, ...]:
    """Split a list at commas, without repetitions."""
    return tuple(dict.fromkeys(name for each in text.split(",") if (name := each.strip())))


def members(kind: type[Kind], text: str, flag: str) -> tuple[Kind, ...]:
    """Return the members of an enumeration that a list names. Raises InputError for an unknown name."""
    return tuple(find({str(each): each for each in kind}, name, flag) for name in listed(text))


def size_option(name: str) -> str:
    """Return the command-line option of a size.

    For the size `context`, it is --tokens-before, because --context is a degree of parallelism.
    """
    return "--tokens-before" if name == "context" else option(name)


def given_sizes(family: Family, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sizes that were given. Raises InputError for a size that the family does not have."""
    known = dict.fromkeys((*(size.name for size in family.sizes), *family.options))
    found = {name: value for name, value in given.items() if value is not None}
    for name in found:
        if name not in known:
            names = ", ".join(size_option(each).removeprefix("--") for each in known)
            raise InputError(size_option(name), f"is not a size of {family.name}, which has {names}")
    return found


def semantics_of(compat: str | None) -> Semantics:
    """Return the semantics of `--compat`. Raises InputError for an unknown name."""
    if compat not in (None, Semantics.DISTIR):
        raise InputError("--compat", f"unknown semantics {compat!r}; the only one is {Semantics.DISTIR}")
    return Semantics.DISTIR if compat else Semantics.DEFAULT


def note_what_is_shared(mesh: DeviceMesh, workers: Iterable[int], semantics: Semantics, *, link_sharing: bool) -> None:
    """Print a note if `--link-sharing` has no effect, or if it is off and would have an effect.

    Print none under DistIR's semantics, which never share links.
    """
    if semantics is Semantics.DISTIR:
        return
    if link_sharing and mesh.node_uplink is None:
        print_notes(mesh.name, ["the mesh has no node_uplink, so --link-sharing has no effect"])
    several = len({mesh.devices[worker - 1].node for worker in workers}) > 1
    if not link_sharing and mesh.node_uplink is not None and several:
        print_notes(mesh.name, ["each transfer gets the whole node_uplink; --link-sharing shares it"])


def given_mesh(
    named: str | None, uniform: str | None, count: int, semantics: Semantics, per_node: int | None = None
) -> DeviceMesh:
    """Return the mesh of the options.

    Without options, return `count` H200s, or `count` devices of DistIR's experiments under its semantics.
    """
    if named is not None and uniform is not None:
        raise InputError("--mesh", "already determines the devices, so leave out --uniform-mesh")
    if named is not None:
        return find_mesh_file(named, per_node).mesh
    if per_node is not None:
        raise InputError("--per-node", "is for a --mesh named KIND-COUNT")
    if count > MAX_DEVICES:
        raise InputError("devices", f"must be at most {MAX_DEVICES:,} in a mesh, got {count:,}")
    if uniform is None and semantics is Semantics.DEFAULT:
        nodes = -(-count // _DEVICES_PER_NODE)
        return uniform_mesh("h200", nodes, _DEVICES_PER_NODE if nodes > 1 else count)
    try:
        flops, bytes_per_second, gigabits = map(float, (uniform or _DISTIR_MESH).split(","))
    except ValueError:
        raise InputError("--uniform-mesh", f"must be FLOPS,BYTES_PER_S,GBPS, got {uniform!r}") from None
    return equal_devices(count, flops, bytes_per_second, gigabits)

"""Options that `tessel simulate` and `tessel sweep` share: a mesh, semantics, and sizes of a family."""

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
"""The devices of DistIR's experiments, which its semantics are asked about where no mesh is named."""
_PER_NODE = 8
Kind = TypeVar("Kind", bound=StrEnum)

BUCKET_MIB = BUCKET_BYTES / 2**20
Bucket = Annotated[
    float,
    typer.Option(
        metavar="MIB",
        min=0,
        help="Gradients that replicas reduce together, in MiB. Larger buckets pay less latency and start later; "
        "0 reduces each gradient on its own.",
    ),
]


def bucket_bytes(mebibytes: float) -> int:
    """The bytes of `--bucket`; InputError for what is no finite number."""
    if not math.isfinite(mebibytes):
        raise InputError("--bucket", f"must be a finite number of MiB, got {mebibytes}")
    return round(mebibytes * 2**20)


def named_family(what: str) -> tuple[Family, Mapping[str, Any]] | None:
    """The family of this name, of a preset's or of a Hugging Face config's, and the sizes that these say.

    None for another name or file.  Raises InputError as `config_network`.
    """
    if what in FAMILIES:
        return find_family(what), {}
    known = preset_network(what)
    if known is not None:
        return known
    config = asked_config(what) if Path(what).is_file() else None
    return None if config is None else (find_family(config.family), sizes_said(config.family, config.spec))


def assignments(given: Iterable[str]) -> dict[str, str]:
    """The values of `--set NAME=VALUE` by name; InputError for what is no assignment."""
    found = dict[str, str]()
    for each in given:
        name, mark, value = each.partition("=")
        if not mark:
            raise InputError("--set", f"wants NAME=VALUE, got {each[:80]!r}")
        found[name.strip().replace("-", "_")] = value.strip()
    return found


def number_or_text(value: Any) -> Any:
    """A number from its text, as the command line gives those of options; other texts as they are."""
    for kind in (int, float) if isinstance(value, str) else ():
        try:
            return kind(value)
        except ValueError:
            continue
    return value


def listed(text: str) -> tuple[str, ...]:
    """The names of a list, each once."""
    return tuple(dict.fromkeys(name for each in text.split(",") if (name := each.strip())))


def members(kind: type[Kind], text: str, flag: str) -> tuple[Kind, ...]:
    """Members of an enumeration by their names; InputError for another name."""
    return tuple(find({str(each): each for each in kind}, name, flag) for name in listed(text))


def size_option(name: str) -> str:
    """The option of a size; `--context` is the degree of context parallelism, so tokens have another one."""
    return "--tokens-before" if name == "context" else option(name)


def given_sizes(family: Family, given: Mapping[str, Any]) -> dict[str, Any]:
    """The sizes that were given; InputError for one that the family does not have."""
    known = dict.fromkeys((*(size.name for size in family.sizes), *family.options))
    found = {name: value for name, value in given.items() if value is not None}
    for name in found:
        if name not in known:
            names = ", ".join(size_option(each).removeprefix("--") for each in known)
            raise InputError(size_option(name), f"is no size of {family.name}, which has {names}")
    return found


def semantics_of(compat: str | None) -> Semantics:
    """The semantics of `--compat`."""
    if compat not in (None, Semantics.DISTIR):
        raise InputError("--compat", f"{compat!r} is not known, known is {Semantics.DISTIR}")
    return Semantics.DISTIR if compat else Semantics.DEFAULT


def note_what_is_shared(mesh: DeviceMesh, workers: Iterable[int], semantics: Semantics, *, link_sharing: bool) -> None:
    """Note where `--link-sharing` changes nothing, and where it would, for workers on several nodes.

    DistIR knows no sharing, so its semantics need no note.
    """
    if semantics is Semantics.DISTIR:
        return
    if link_sharing and mesh.node_uplink is None:
        print_notes(mesh.name, ["it has no node_uplink, so no transfers share one"])
    several = len({mesh.devices[worker - 1].node for worker in workers}) > 1
    if not link_sharing and mesh.node_uplink is not None and several:
        print_notes(mesh.name, ["each transfer counts as if a node_uplink were its own; --link-sharing shares it"])


def given_mesh(
    named: str | None, uniform: str | None, count: int, semantics: Semantics, per_node: int | None = None
) -> DeviceMesh:
    """The mesh of the options; else `count` H200s, or of DistIR's devices under its semantics."""
    if named is not None and uniform is not None:
        raise InputError("--mesh", "says what the devices are, so leave out --uniform-mesh")
    if named is not None:
        return find_mesh_file(named, per_node).mesh
    if per_node is not None:
        raise InputError("--per-node", "is for a --mesh named KIND-COUNT")
    if count > MAX_DEVICES:
        raise InputError("devices", f"there are {count:,}, more than the {MAX_DEVICES:,} of a mesh")
    if uniform is None and semantics is Semantics.DEFAULT:
        nodes = -(-count // _PER_NODE)
        return uniform_mesh("h200", nodes, _PER_NODE if nodes > 1 else count)
    try:
        flops, bytes_per_second, gigabits = map(float, (uniform or _DISTIR_MESH).split(","))
    except ValueError:
        raise InputError("--uniform-mesh", f"must be FLOPS,BYTES_PER_S,GBPS, got {uniform!r}") from None
    return equal_devices(count, flops, bytes_per_second, gigabits)

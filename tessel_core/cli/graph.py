"""`tessel graph`: build operator graphs of networks, files and PyTorch modules.

It can add the backward pass and merge layers.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tessel_core.cli import options
from tessel_core.cli.output import Json, as_typed, console, print_json, print_notes, table
from tessel_core.errors import InputError, find, nearest
from tessel_core.formats import GraphFile, graph_text, write_file
from tessel_core.formats.fields import looks_like_config
from tessel_core.formats.files import check_place, read_any, read_bytes, refused
from tessel_core.formats.onnx import OnnxModel
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.model import OperatorGraph
from tessel_core.options import changed_options, config_from, options_of
from tessel_core.units import show_memory

if TYPE_CHECKING:
    from tessel_core.networks.graphs.spec import GraphFamily, GraphSpec
    from tessel_core.networks.huggingface import NamedNetwork
    from tessel_core.networks.pytorch import ImportedModule


@dataclass(frozen=True, slots=True)
class BackwardArguments:
    """Options of the backward pass."""

    backward: Annotated[bool, typer.Option("--backward", help="Add the backward pass.")] = False
    recompute: Annotated[
        Recompute,
        typer.Option(
            help="With --backward: operators whose results are not kept but computed again. none; selective: every "
            "second matrix product of a layer and all cheap operators; full: whole layers. Recomputing more saves "
            "memory and takes time."
        ),
    ] = Recompute.NONE
    split_weights: Annotated[
        bool, typer.Option("--split-weights", help="With --backward: make weight gradients operators of their own.")
    ] = False

    def check(self) -> None:
        """Raise InputError if an option has no effect without `--backward`."""
        recomputes = self.recompute != Recompute.NONE
        if (recomputes or self.split_weights) and not self.backward:
            flag = "--recompute" if recomputes else "--split-weights"
            raise InputError(flag, "is an option of the backward pass, so give --backward too")

    def on_spec(self, spec: Any) -> Any:
        """Return the spec of a network or ONNX model. It includes the backward pass if `--backward` was given."""
        if not self.backward:
            return spec
        return replace(spec, training=True, recompute=self.recompute, split_weights=self.split_weights)


@options.field_by_field
def graph(
    source: Annotated[
        str | None,
        typer.Argument(
            help="Network family or preset, or a file: a graph, an ONNX model or a Hugging Face config.json. "
            "Omit it to list families and presets."
        ),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Published size of the network family.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="OPTION=VALUE",
            help="Option of the network (listed without SOURCE), or a size that an ONNX file leaves open. Repeatable.",
        ),
    ] = None,
    training: BackwardArguments = BackwardArguments(),
    torch: Annotated[
        bool,
        typer.Option(
            "--torch",
            help="Take SOURCE as FILE.py:FUNCTION and execute it. The function returns a PyTorch module and its "
            "inputs. The module is exported without weights.",
        ),
    ] = False,
    by_layer: Annotated[
        bool,
        typer.Option(
            "--by-layer",
            help="Merge all operators of a layer into one. The first part of an operator's name is its layer.",
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="File for the graph, in the tessel-graph format.")] = None,
    json: Json = False,
) -> None:
    """Build the operator graph of a network, add the backward pass to a graph, or merge its layers."""
    from tessel_core.networks.graphs.table import GRAPHS

    if source is None:
        _list(list(GRAPHS.values()), as_json=json)
        return
    training.check()
    network = None if torch else _network(source, preset)
    if network is None and preset is not None:
        raise InputError("--preset", f"is for networks, and {source} is not one")
    if out is not None:
        path = Path(source.rpartition(":")[0] if torch else source)
        check_place(out, path if path.exists() else None)
    if network is None:
        built = (_module_graph if torch else _file_graph)(source, changes or (), training)
        built = _layers(built) if by_layer else built
    else:
        built = _network_graph(network, changes or (), training, by_layer=by_layer)
    if out is not None:
        write_file(out, graph_text(_writable(built)))
    _show(built, as_json=json)


def _network_graph(
    network: tuple[GraphFamily, GraphSpec | None, str],
    changes: Sequence[str],
    training: BackwardArguments,
    *,
    by_layer: bool,
) -> OperatorGraph:
    """Build the graph of a family, a preset or a config."""
    from tessel_core.networks.graphs.spec import LAYERS
    from tessel_core.networks.graphs.table import build_graph

    family, preset, name = network
    spec = training.on_spec(_spec(family, preset, changes))
    return build_graph(family.name, replace(spec, granularity=LAYERS) if by_layer else spec, name)


def _module_graph(source: str, changes: Sequence[str], training: BackwardArguments) -> OperatorGraph:
    """Build the graph of a PyTorch module of the user."""
    from tessel_core.ir.transforms.checkpoint import recomputing
    from tessel_core.ir.transforms.gradients import Gradients
    from tessel_core.networks.program_graph import graph_of

    found = asked_module(source, changes)
    model = found.model
    if training.backward:
        gradients = Gradients(split_weights=training.split_weights, of_outputs=True)
        model = recomputing(training.recompute, gradients(model))
    return graph_of(model, f"{found.name}{'-training' if training.backward else ''}", found.batch_size)


def asked_module(source: str, changes: Sequence[str]) -> ImportedModule:
    """Import a PyTorch module of the user.

    `--set dtype=bf16` chooses the number format of weights and inputs. A note names the operations of which only the
    costs are known. Raises InputError for another option of `--set`, and if `import_module` does.
    """
    from tessel_core.networks.pytorch import import_module

    asked = dict(each.partition("=")[::2] for each in changes)
    strange = next((name for name in asked if name != "dtype"), None)
    if strange is not None:
        raise InputError("--set", f"unknown option {strange!r} of a module; the only option is dtype")
    sys.stderr.write(f"executing {source}\n")
    with redirect_stdout(sys.stderr):
        found = import_module(source, asked.get("dtype", ""))
    known = [f"{many} of {kind}" for kind, many in sorted(found.opaque.items(), key=lambda each: -each[1])]
    print_notes(source, [f"only the costs of {', '.join(known[:_MAX_OPERATIONS_NAMED])} are known"] if known else [])
    return found


_MAX_OPERATIONS_NAMED = 8


def asked_network(source: str, preset: str | None, changes: Sequence[str]) -> tuple[GraphFamily, Any, str]:
    """Return family, spec with changes, and name of a network.

    The network is given as a family, a preset or a config file. Raises InputError for a file of another kind, an
    unknown name or an unknown option.
    """
    found = _network(source, preset)
    if found is None:
        raise InputError(source, "is not a network, a preset or a Hugging Face config")
    family, spec, name = found
    return family, _spec(family, spec, changes), name


def _network(source: str, preset: str | None) -> tuple[GraphFamily, GraphSpec | None, str] | None:
    """Return family, spec and name of a network.

    The spec is None for the defaults. Return None for a file of another kind.
    """
    from tessel_core.networks.graphs.table import GRAPHS

    by_preset = {name: family for family in GRAPHS.values() for name in family.presets}
    family = GRAPHS.get(source) or by_preset.get(source)
    if family is None:
        if not Path(source).exists():
            hint = nearest(source, [*GRAPHS, *by_preset], "`tessel graph` lists the networks")
            raise InputError("graph", f"{source!r} is neither a network nor a file, {hint}")
        config = asked_config(source)
        return None if config is None else (GRAPHS[config.family], config.spec, config.name)
    if preset is not None:
        find(family.presets, preset, "--preset")
    return family, family.presets.get(preset or source), preset or source


def asked_config(source: str) -> NamedNetwork | None:
    """Read the network of a Hugging Face config. Return None for a file of another kind."""
    from tessel_core.networks.huggingface import config_network

    data = read_bytes(Path(source))
    return config_network(data, source) if looks_like_config(data) else None


def _spec(family: GraphFamily, preset: GraphSpec | None, changes: Sequence[str]) -> Any:
    """Return the spec of the preset, or the default spec of the family, with the user's changes."""
    values = dict[str, object]() if preset is None else changed_options(preset)
    for change in changes:
        name, mark, value = change.partition("=")
        if not mark:
            raise InputError("--set", f"must be OPTION=VALUE, got {change!r}")
        values[name.strip().replace("-", "_")] = value.strip()
    with as_typed(lambda name: f"--set {name}"):
        return config_from(family.spec, values)


def _file_graph(source: str, changes: Sequence[str], training: BackwardArguments) -> OperatorGraph:
    """Read the graph of a file. Add the backward pass if `--backward` was given."""
    from tessel_core.networks.graphs.table import training_graph

    found = read_any(Path(source))
    if isinstance(found, OnnxModel):
        from tessel_core.networks.onnx import model_graph, spec_from

        file = model_graph(found, training.on_spec(spec_from(changes, "--set")))
        print_notes(source, file.warnings)
        return file.graph
    if changes:
        raise InputError("--set", f"is for networks and ONNX models, and {source} is neither of them")
    if not isinstance(found, GraphFile):
        raise refused(found, source, "an operator graph")
    if not training.backward:
        return found.graph
    try:
        return training_graph(found.graph, recompute=training.recompute, split_weights=training.split_weights)
    except InputError as error:
        if error.where != "recomputation":
            raise
        raise InputError("--recompute", f"selective is for networks, and {source} is not one; use full") from None


def _layers(found: OperatorGraph) -> OperatorGraph:
    """Merge operators by layer. Time the layers in bf16 if the times of all operators are known or can be derived."""
    from tessel_core.networks.graphs.coarsen import by_layer
    from tessel_core.networks.graphs.table import of_layers

    can_be_timed = all(each.times or each.flops is not None or each.bytes is not None for each in found.operators)
    return of_layers(found, "bf16") if can_be_timed and found.time_unit == "s" else by_layer(found)


def _writable(found: OperatorGraph) -> OperatorGraph:
    """Return the graph if a tessel-graph file can hold all of it. Raises InputError otherwise."""
    if found.time_unit != "s" or any(edge.cost is not None for edge in found.edges):
        why = f"has times in {found.time_unit} and costs of transfers, but a tessel-graph file needs seconds and bytes"
        raise InputError(f"graph {found.name}", why)
    return found


def _summary(found: OperatorGraph) -> dict[str, object]:
    """Return the `--json` document.

    Sums are over the operators whose amount is known, and null if none is.  `parameters` counts each weight of the
    whole network once; it is null if the graph belongs to no network.
    """
    from tessel_core.networks.graphs.table import parameters_of

    totals = {}
    for column in ("flops", "bytes", "weight_bytes", "activation_bytes"):
        known = [amount for operator in found.operators if (amount := getattr(operator, column)) is not None]
        totals[column] = sum(known) if known else None
    return {
        "name": found.name,
        "operators": len(found.operators),
        "edges": len(found.edges),
        "training": found.is_training,
        "batch_size": found.batch_size,
        **totals,
        "parameters": parameters_of(found),
    }


def _show(found: OperatorGraph, *, as_json: bool) -> None:
    numbers = _summary(found)
    if as_json:
        print_json(numbers)
        return
    facts = table(show_header=False)
    facts.add_row("operators", f"{numbers['operators']:,}")
    facts.add_row("edges", f"{numbers['edges']:,}")
    if isinstance(numbers["parameters"], int):
        facts.add_row("parameters", f"{numbers['parameters']:,}")
    flops = numbers["flops"]
    if isinstance(flops, float):
        facts.add_row("FLOPs", f"{flops:.4g}")
    for what in ("weight_bytes", "activation_bytes"):
        amount = numbers[what]
        if isinstance(amount, int):
            facts.add_row(what.removesuffix("_bytes") + "s", show_memory(amount, "B"))
    console(found.name).print(facts)


def _list(families: Sequence[GraphFamily], *, as_json: bool) -> None:
    """Print the network families with their presets and options."""
    if as_json:
        print_json([_family_document(family) for family in families])
        return
    from tessel_core.networks.graphs.spec import GraphSpec

    common = options_of(GraphSpec)
    networks = table("network", "description", "presets", "--set", header_style="bold")
    for family in families:
        own = [name for name in options_of(family.spec) if name not in common]
        networks.add_row(family.name, family.title, ", ".join(family.presets), ", ".join(own))
    screen = console()
    screen.print(networks)
    screen.print(f"Options of every network: --set {', '.join(common)}")


def _family_document(family: GraphFamily) -> dict[str, object]:
    return {
        "name": family.name,
        "title": family.title,
        "source": family.source,
        "presets": {name: changed_options(preset) for name, preset in family.presets.items()},
        "options": {name: default for name, (_, default) in options_of(family.spec).items()},
    }

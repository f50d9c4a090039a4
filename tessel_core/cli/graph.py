"""`tessel graph`: operator graphs of known networks, and what can be derived from any graph."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

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


def graph(
    source: Annotated[
        str | None,
        typer.Argument(
            help="A network or a preset (listed without it), or a file: a graph, ONNX, a Hugging Face config.json."
        ),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="A published size of the network.")] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="OPTION=VALUE",
            help="An option of the network, or a size that an ONNX file leaves open; repeatable.",
        ),
    ] = None,
    backward: Annotated[bool, typer.Option("--backward", help="Add the backward pass.")] = False,
    recompute: Annotated[
        Recompute,
        typer.Option(
            help="What runs again in the backward pass and is not kept: nothing, every second product and the quick "
            "rest, or whole layers."
        ),
    ] = Recompute.NONE,
    split_weights: Annotated[
        bool, typer.Option("--split-weights", help="Make weight gradients operators of their own.")
    ] = False,
    torch: Annotated[
        bool,
        typer.Option(
            "--torch",
            help="Execute FILE.py:FUNCTION, which returns a PyTorch module and its inputs, and export the module "
            "without weights.",
        ),
    ] = False,
    by_layer: Annotated[
        bool,
        typer.Option(
            "--by-layer", help="Merge each layer, named by the first part of its operators' names, into one operator."
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="tessel-graph file to write.")] = None,
    json: Json = False,
) -> None:
    """Build the operator graph of a network, or add the backward to a graph, or merge its layers."""
    from tessel_core.networks.graphs.spec import LAYERS
    from tessel_core.networks.graphs.table import GRAPHS, build_graph

    if source is None:
        _list(list(GRAPHS.values()), as_json=json)
        return
    recomputes = recompute != Recompute.NONE
    if (recomputes or split_weights) and not backward:
        raise InputError("--recompute" if recomputes else "--split-weights", "is for the backward; say --backward too")
    if torch:
        if preset is not None:
            raise InputError("--preset", f"is for networks, and {source} is none of them")
        if out is not None:
            check_place(out, Path(source.rpartition(":")[0]))
        shown = _of_module(source, changes or (), backward, recompute=recompute, split_weights=split_weights)
        _end(_layers(shown) if by_layer else shown, out, as_json=json)
        return
    found = _network(source, preset)
    if out is not None:
        check_place(out, Path(source) if Path(source).exists() else None)
    if found is None:
        if preset is not None:
            raise InputError("--preset", f"is for networks, and {source} is none of them")
        shown = _of_file(source, changes or (), backward, recompute=recompute, split_weights=split_weights)
        shown = _layers(shown) if by_layer else shown
    else:
        family, preset_spec, chosen = found
        spec = _spec(family, preset_spec, changes or ())
        if backward:
            spec = replace(spec, training=True, recompute=str(recompute), split_weights=split_weights)
        shown = build_graph(family.name, replace(spec, granularity=LAYERS) if by_layer else spec, chosen)
    _end(shown, out, as_json=json)


def _end(shown: OperatorGraph, out: Path | None, *, as_json: bool) -> None:
    if out is not None:
        write_file(out, graph_text(_writable(shown)))
    _show(shown, as_json=as_json)


def _of_module(
    source: str, changes: Sequence[str], backward: bool, *, recompute: Recompute, split_weights: bool
) -> OperatorGraph:
    """The graph of a person's own PyTorch module."""
    from tessel_core.ir.transforms.checkpoint import recomputing
    from tessel_core.ir.transforms.gradients import Gradients
    from tessel_core.networks.program_graph import graph_of

    found = asked_module(source, changes)
    model = found.model
    if backward:
        model = recomputing(recompute, Gradients(split_weights=split_weights, of_outputs=True)(model))
    return graph_of(model, f"{found.name}{'-training' if backward else ''}", found.batch_size)


def asked_module(source: str, changes: Sequence[str]) -> ImportedModule:
    """A person's own PyTorch module; `--set dtype=bf16` says the format of its weights and inputs.

    What is only known by its costs is noted.  Raises InputError as `import_module`, and for another option.
    """
    from tessel_core.networks.pytorch import import_module

    asked = dict(each.partition("=")[::2] for each in changes)
    strange = next((name for name in asked if name != "dtype"), None)
    if strange is not None:
        raise InputError("--set", f"{strange!r} is no option of a module, known is dtype")
    sys.stderr.write(f"executing {source}\n")
    with redirect_stdout(sys.stderr):
        found = import_module(source, asked.get("dtype", ""))
    known = [f"{many} of {kind}" for kind, many in sorted(found.opaque.items(), key=lambda each: -each[1])]
    print_notes(source, [f"only the costs are known of {', '.join(known[:_MOST_NAMED])}"] if known else [])
    return found


_MOST_NAMED = 8


def asked_network(source: str, preset: str | None, changes: Sequence[str]) -> tuple[GraphFamily, Any, str]:
    """The family, the spec and the name of a network that is named by itself, a preset or a config, with changes.

    Raises InputError for a name that is none of them, and for an option that there is not.
    """
    found = _network(source, preset)
    if found is None:
        raise InputError(source, "is a file, but a network, a preset or a Hugging Face config is needed")
    family, spec, name = found
    return family, _spec(family, spec, changes), name


def _network(source: str, preset: str | None) -> tuple[GraphFamily, GraphSpec | None, str] | None:
    """The network of this name, of a preset's or of a config, its spec where it has one, and its name; None for a file
    of another kind."""
    from tessel_core.networks.graphs.table import GRAPHS

    by_preset = {name: family for family in GRAPHS.values() for name in family.presets}
    family = GRAPHS.get(source) or by_preset.get(source)
    if family is None:
        if not Path(source).exists():
            hint = nearest(source, [*GRAPHS, *by_preset], "`tessel graph` lists the networks")
            raise InputError("graph", f"{source!r} is no network and no file, {hint}")
        config = asked_config(source)
        return None if config is None else (GRAPHS[config.family], config.spec, config.name)
    if preset is not None:
        find(family.presets, preset, "--preset")
    return family, family.presets.get(preset or source), preset or source


def asked_config(source: str) -> NamedNetwork | None:
    """The network of a Hugging Face config; None for a file of another kind."""
    from tessel_core.networks.huggingface import config_network

    data = read_bytes(Path(source))
    return config_network(data, source) if looks_like_config(data) else None


def _spec(family: GraphFamily, preset: GraphSpec | None, changes: Sequence[str]) -> Any:
    """The preset, or the family's defaults, with the changes."""
    values = dict[str, object]() if preset is None else changed_options(preset)
    for change in changes:
        name, mark, value = change.partition("=")
        if not mark:
            raise InputError("--set", f"wants OPTION=VALUE, got {change!r}")
        values[name.strip().replace("-", "_")] = value.strip()
    with as_typed(lambda name: f"--set {name}"):
        return config_from(family.spec, values)


def _of_file(
    source: str, changes: Sequence[str], backward: bool, *, recompute: Recompute, split_weights: bool
) -> OperatorGraph:
    """The graph of a file, with its backward where it is asked for."""
    from tessel_core.networks.graphs.table import training_graph

    found = read_any(Path(source))
    if isinstance(found, OnnxModel):
        from tessel_core.networks.onnx import model_graph, spec_from

        spec = spec_from(changes, "--set")
        if backward:
            spec = replace(spec, training=True, recompute=recompute, split_weights=split_weights)
        file = model_graph(found, spec)
        print_notes(source, file.warnings)
        return file.graph
    if changes:
        raise InputError("--set", f"is for networks and ONNX models, and {source} is neither")
    if not isinstance(found, GraphFile):
        raise refused(found, source, "an operator graph")
    if not backward:
        return found.graph
    try:
        return training_graph(found.graph, recompute=recompute, split_weights=split_weights)
    except InputError as error:
        if error.where != "recomputation":
            raise
        raise InputError("--recompute", f"selective is for networks, and {source} shows none; say full") from None


def _layers(found: OperatorGraph) -> OperatorGraph:
    """Its layers, timed in bf16 where all operators can be."""
    from tessel_core.networks.graphs.coarsen import by_layer
    from tessel_core.networks.graphs.table import of_layers

    can_be_timed = all(each.times or each.flops is not None or each.bytes is not None for each in found.operators)
    return of_layers(found, "bf16") if can_be_timed and found.time_unit == "s" else by_layer(found)


def _writable(found: OperatorGraph) -> OperatorGraph:
    """The graph itself, if a tessel-graph file can hold all of it."""
    if found.time_unit != "s" or any(edge.cost is not None for edge in found.edges):
        why = f"has times in {found.time_unit} and costs of transfers, where a tessel-graph has seconds and bytes"
        raise InputError(f"graph {found.name}", why)
    return found


def _summary(found: OperatorGraph) -> dict[str, object]:
    """The `--json` of `tessel graph`; sums of what is known of the operators, null where nothing is.

    `parameters` are those of the whole network, weights with several uses counted once; null where there is none.
    """
    from tessel_core.networks.graphs.table import parameters_of

    totals = {}
    for what in ("flops", "bytes", "weight_bytes", "activation_bytes"):
        known = [amount for operator in found.operators if (amount := getattr(operator, what)) is not None]
        totals[what] = sum(known) if known else None
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
    """The networks, their presets and their options."""
    if as_json:
        print_json([_family_document(family) for family in families])
        return
    from tessel_core.networks.graphs.spec import GraphSpec

    common = options_of(GraphSpec)
    networks = table("network", "what it is", "presets", "--set", header_style="bold")
    for family in families:
        own = [name for name in options_of(family.spec) if name not in common]
        networks.add_row(family.name, family.title, ", ".join(family.presets), ", ".join(own))
    screen = console()
    screen.print(networks)
    screen.print(f"All of them: --set {', '.join(common)}")


def _family_document(family: GraphFamily) -> dict[str, object]:
    return {
        "name": family.name,
        "title": family.title,
        "source": family.source,
        "presets": {name: changed_options(preset) for name, preset in family.presets.items()},
        "options": {name: default for name, (_, default) in options_of(family.spec).items()},
    }

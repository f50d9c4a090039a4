"""Compare published step times with predictions of the simulator and the scheduler.

    python tests/benchmarks/published.py           # every row, in some minutes
    python tests/benchmarks/published.py --small   # rows of up to 1,000 layers by micro-batches, in some seconds

Rows are read from `published_steps.csv` in the folder `shared/data` beside the repository.  If it is absent, there is
nothing to compare, and the exit status is 0.  Rows of strategies are simulated as by `tessel simulate`.  Rows of
zero-bubble schedules go from the operator graph to a placement by layers, to a plan, to the published order, as with
`tessel graph`, `place`, `plan` and `schedule`.  Those runs skip the synchronisation before the optimizer's step
[Qi 2023, arXiv 2401.10241, section 4].  So each device starts its next step on its own, and a step lasts as long as the
longest time between the first and the last run of a device.

Peak memory is compared with the published kind: SimuMax publishes allocated bytes, torchtitan the bytes that PyTorch's
allocator reserved.

The simplest competitor assumes 45 % of the peak rate for the FLOPs of the model, times the textbook bubble
1 + (P - 1) / (V M).  The exit status is 1 if a limit of a constant `REACH_...` is exceeded.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from tessel_core.costs.costed import CostOptions, costed
from tessel_core.costs.devices import find_device_kind
from tessel_core.costs.meshes import find_mesh
from tessel_core.ir.transforms.attention import AttentionKernel
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.model import MicroBatchPlan, Placement
from tessel_core.networks.gpt import GptOptions
from tessel_core.networks.graphs.table import GRAPHS, build_graph
from tessel_core.placement.by_layer import place_by_layer
from tessel_core.placement.problem import PlacementProblem
from tessel_core.planning.plan import plan_of
from tessel_core.scheduling import solve_schedule
from tessel_core.simulation.reserved import reserved_bytes
from tessel_core.strategies.evaluation import Configuration, evaluate
from tessel_core.strategies.families import Family, Spec, find_family
from tessel_core.strategies.rates import model_flops
from tessel_core.strategies.strategy import Strategy, simulate_places

ROWS = Path(__file__).resolve().parents[3] / "shared" / "data" / "published_steps.csv"
USUAL_SHARE = 0.45
"""Share of the peak rate that the simplest competitor assumes."""
REACH_MEDIAN = {"2205.05198": 0.10, "SimuMax": 0.08, "2401.10241": 0.10, "llama3_h100": 0.08}
"""Limits of the median error of the rows of a source, by a word of its name."""
REACH_MEMORY = 0.04, 0.10
"""Limits of the median and the 90th percentile of the errors of peak memory."""
MAX_SMALL_PARTS = 1000
"""Largest product of layers and micro-batches of a row with `--small`: others take some seconds to minutes each."""
REACH_RATIO = 0.06
"""Limit of the error of the ratio between the steps of 1F1B and of a zero-bubble schedule for the same setting."""
REACH_SCALING = {16: 1.15, 128: 1.25}
"""Limits by number of H100s: step of GPT-3 1.3B divided by the step on 8, with data parallelism, 1 sample each."""
VOCABULARY = {"Korthikanti": 51_200, "zero bubble": 50_304}
"""Padded vocabularies, by source."""
SIMUMAX_SIZES = {"deepseek-v3": {"dense_layers": 1}, "llama-3-405b": {"kv_heads": 16}}
"""Sizes of SimuMax's runs that differ from the published networks: "DeepSeekV3 formal rows use dense_layers=1", and 16
key-value heads, not 8 [docs/b200/b200_release_v1.2_summary.md, configs/models/llama3-405b_padding_128.json]."""
PRESETS = {preset: name for name, family in GRAPHS.items() for preset in family.presets}
"""Families by the names of published networks."""

Row = dict[str, str]


@dataclass(frozen=True)
class Setting:
    """A row of the table, with its values as numbers."""

    row: Row

    def __getitem__(self, name: str) -> int:
        return int(self.row[name] or 0)

    @property
    def network(self) -> tuple[Family, Spec]:
        """Family and network, with the number of layers of the run."""
        name = self.row["model"]
        dtype = "bf16" if self.fp8 else self.row["dtype"]
        common = {"sequence": self["sequence"], "batch": self.batch, "dtype": dtype}
        if name in PRESETS:
            family = find_family(PRESETS[name])
            sizes = SIMUMAX_SIZES.get(name, {}) if "SimuMax" in self.row["source"] else {}
            return family, family.spec(size=name, layers=self["layers"], **common, **sizes)
        layers, hidden, heads = self.sizes
        sizes = {"layers": layers, "hidden": hidden, "heads": heads, "vocabulary": self.vocabulary}
        return find_family("gpt"), find_family("gpt").spec(size="gpt3-175b", **sizes, **common)

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Layers, hidden size and heads."""
        layers, hidden, heads = map(int, self.row["model"].removeprefix("gpt:").split("x"))
        return layers, hidden, heads

    @property
    def fp8(self) -> bool:
        """Whether linear layers are computed in FP8."""
        return self.row["dtype"] == "fp8"

    @property
    def attention(self) -> AttentionKernel:
        """Attention kernel: torchtitan ran FlashAttention 2, also on Hopper GPUs [torchtitan/models/attention.py]."""
        return AttentionKernel.FLASH2 if self.torchtitan else AttentionKernel.FUSED

    @property
    def eager_loss(self) -> bool:
        """Whether the loss is eager: torchtitan compiled only layers in 2024 [9dec370, train.py; e7c0cae, loss.py]."""
        return "202412" in self.row["source"]

    @property
    def zero_bubble(self) -> bool:
        """Whether the row comes from the paper on zero-bubble schedules."""
        return "2401.10241" in self.row["source"]

    @property
    def vocabulary(self) -> int:
        return VOCABULARY["zero bubble" if self.zero_bubble else "Korthikanti"]

    @property
    def torchtitan(self) -> bool:
        """Whether torchtitan ran it."""
        return "torchtitan" in self.row["source"]

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches of each replica.

        By default torchtitan has as many micro-batches as pipeline devices, and its tables mention no other number
        [9dec370, pipelining_utils.py].  So the 32 of one row are samples, with four per micro-batch.
        """
        return self["pipeline"] if self.torchtitan and self["pipeline"] > 1 else self["micro_batches"]

    @property
    def batch(self) -> int:
        """Samples per step."""
        return self["data"] * self["micro_batches"] * self["micro_batch_size"]

    @property
    def published(self) -> float:
        """Published seconds of a step."""
        value = float(self.row["value"])
        if self.row["metric"] == "step_s":
            return value
        per_sample = {"samples_per_s_per_device": 1, "tokens_per_s_per_device": self["sequence"]}[self.row["metric"]]
        return self.batch * per_sample / (value * self["devices"])

    @property
    def missing(self) -> str:
        """Reason why the row cannot be simulated; empty if it can."""
        known = self.row["model"].startswith("gpt:") or self.row["model"] in PRESETS
        return "" if known else f"family of {self.row['model']}"

    @property
    def work(self) -> float:
        """Number of layers that are simulated, counted once per micro-batch; 0 if blocks suffice."""
        plain = not self["zero"] and not self["sequence_parallel"]
        return 0.0 if plain else self["layers"] * self["micro_batches"]

    @property
    def memory(self) -> float | None:
        """Published peak memory of the fullest device in GiB; None if there is none."""
        return float(self.row["memory_gib"]) if self.row["memory_gib"] else None


@dataclass(frozen=True)
class Predicted:
    """Predicted step time and peak memory of a row."""

    seconds: float
    memory: float | None = None
    """Peak memory of the fullest device in GiB."""


def simulated(setting: Setting) -> Predicted:
    """Predict a row by simulating its strategy."""
    family, spec = setting.network
    strategy = Strategy(
        *(setting[name] for name in ("data", "tensor", "pipeline")),
        setting.micro_batches,
        schedule=setting.row["schedule"] or "1f1b",
        recompute=Recompute(setting.row["recompute"] or "none"),
        zero=setting["zero"],
        stages_per_device=setting["virtual"],
        context=setting["context"],
        expert=setting["expert"],
        sequence_parallel=setting["sequence_parallel"] == 1,
        # torchtitan keeps gathered weights over a pipeline's micro-batches, and reduces in fp32 as Megatron-LM does.
        reshard=setting["pipeline"] == 1,
        grad_dtype="fp32" if setting["zero"] else "",
        attention=setting.attention,
        fp8=setting.fp8,
        compiled=setting["compiled"] == 1,
        eager_loss=setting.eager_loss,
    )
    mesh = find_mesh(f"{setting.row['device']}-{setting['devices']}", setting["per_node"])
    (found,) = evaluate(family, [Configuration(spec, strategy)], mesh)
    if found.reason and not found.peaks:
        raise SystemExit(f"error: {setting.row['id']}: {found.reason}")
    if not setting.torchtitan or setting.memory is None:
        return Predicted(found.latency, max(found.peaks) / 2**30)
    reserved = reserved_bytes(simulate_places(family, spec, strategy, mesh))
    return Predicted(found.latency, max(reserved) / 2**30)


@lru_cache(maxsize=16)
def placed_plan(sizes: tuple[int, ...], device: str, split: bool) -> MicroBatchPlan:
    """Return the plan of a GPT whose first and last stage have one layer less than the others, as in those runs."""
    layers, hidden, heads, vocabulary, sequence, micro_batch, stages, devices = sizes
    spec = GptOptions(
        **{"layers": layers, "hidden": hidden, "heads": heads, "vocabulary": vocabulary},
        **{"sequence": sequence, "positions": sequence, "micro_batch": micro_batch},
        training=True,
        split_weights=split,
    )
    mesh = find_mesh(f"{device}-{devices}")
    graph = costed(build_graph("gpt", spec), mesh, CostOptions())
    each = (layers + 2) // stages
    layout = ["E" + "t" * (each - 1), *["t" * each] * (stages - 2), "t" * (each - 1) + "L"]
    problem = PlacementProblem.on_mesh(graph, mesh)
    placement = Placement(graph, problem.devices, place_by_layer(graph, layout, range(stages)), problem.transfers)
    return plan_of(placement, split_weights=split)


def scheduled(setting: Setting) -> Predicted:
    """Predict a row by scheduling a placed graph in its published order, with a split or a whole backward."""
    names = ("micro_batch_size", "pipeline", "devices")
    sizes = (*setting.sizes, setting.vocabulary, setting["sequence"], *(setting[name] for name in names))
    order = setting.row["schedule"]
    plan = placed_plan(sizes, setting.row["device"], order.startswith("zb-"))
    schedule = solve_schedule(order, plan, setting["micro_batches"]).drawable
    if schedule is None:
        raise SystemExit(f"error: {setting.row['id']}: {order} finds no schedule")
    if not order.startswith("zb-"):
        return Predicted(schedule.makespan / 1e9)
    ends = schedule.start + schedule.duration
    mine = [schedule.runs_on(device) for device in range(len(plan.devices))]
    return Predicted(float(max(ends[runs].max() - schedule.start[runs].min() for runs in mine)) / 1e9)


def dumbest(setting: Setting) -> float:
    """Return the seconds at 45 % of the peak rate, times the textbook bubble."""
    family, spec = setting.network
    peak = find_device_kind(setting.row["device"]).device("peak").peak("bf16")
    assert peak is not None
    flops = model_flops(family, spec) * (4 / 3 if setting.row["recompute"] == "full" else 1)
    bubble = 1 + (setting["pipeline"] - 1) / (setting["virtual"] * setting.micro_batches)
    return flops / (setting["devices"] * peak * USUAL_SHARE) * bubble


def read_rows() -> list[Setting]:
    with ROWS.open(encoding="utf-8", newline="") as file:
        return [Setting(row) for row in csv.DictReader(file)]


def table_of(console: Console, settings: list[Setting]) -> dict[str, Predicted]:
    """Print the predicted and the published step of each row, and return the predictions by the row's id."""
    names = "row", "published s", "predicted s", "error", "45 % of peak", "error", "GiB", "predicted", "error"
    table, found = Table(*names, box=None), dict[str, Predicted]()
    for setting in settings:
        way: Callable[[Setting], Predicted] = scheduled if setting.zero_bubble else simulated
        said, usual, published = way(setting), dumbest(setting), setting.published
        found[setting.row["id"]] = said
        error, usual_error = (f"{each / published - 1:+.1%}" for each in (said.seconds, usual))
        cells = [f"{published:.3f}", f"{said.seconds:.3f}", error, f"{usual:.3f}", usual_error]
        if setting.memory is not None and said.memory is not None:
            cells += [f"{setting.memory:.1f}", f"{said.memory:.1f}", f"{said.memory / setting.memory - 1:+.1%}"]
        table.add_row(setting.row["id"], *cells)
    console.print(table)
    return found


def by_source(console: Console, settings: list[Setting], found: dict[str, Predicted]) -> None:
    """Print the median and the largest absolute error per source, beside those of the simplest competitor."""
    table = Table("source", "rows", "median", "largest", "45 % of peak: median", "largest", box=None)
    for source in dict.fromkeys(setting.row["source"] for setting in settings):
        mine = [setting for setting in settings if setting.row["source"] == source]
        ours = [abs(found[each.row["id"]].seconds / each.published - 1) for each in mine]
        theirs = [abs(dumbest(each) / each.published - 1) for each in mine]
        cells = [f"{each:.1%}" for each in (median(ours), max(ours), median(theirs), max(theirs))]
        table.add_row(source[:60], str(len(mine)), *cells)
    console.print(table)


def ratios(settings: list[Setting], found: dict[str, Predicted]) -> Iterator[tuple[str, float]]:
    """Yield for each zero-bubble row the relative error of its speed-up over the 1F1B row of the same setting."""
    plain = {
        (each.row["model"], each["micro_batches"]): each
        for each in settings
        if each.zero_bubble and each.row["schedule"] == "1f1b"
    }
    for each in settings:
        base = plain.get((each.row["model"], each["micro_batches"]))
        if each.zero_bubble and base is not None and base is not each:
            ours = found[base.row["id"]].seconds / found[each.row["id"]].seconds
            yield each.row["id"], ours / (base.published / each.published) - 1


def scaling(console: Console) -> bool:
    """Print steps of GPT-3 1.3B on more H100s divided by that on 8, and return whether they are within the limits."""
    family, steps = find_family("gpt"), dict[int, float]()
    for count in (8, *REACH_SCALING):
        spec = family.spec(size="gpt3-1.3b", batch=count)
        (found,) = evaluate(family, [Configuration(spec, Strategy(count))], find_mesh(f"h100-{count}"))
        steps[count] = found.latency
    told = ", ".join(f"{count}: {steps[count] / steps[8]:.3f} (reach {most})" for count, most in REACH_SCALING.items())
    console.print(f"GPT-3 1.3B on H100s, step over that on 8 ({steps[8] * 1e3:.0f} ms): {told}")
    return all(steps[count] <= most * steps[8] for count, most in REACH_SCALING.items())


def error_of(setting: Setting, said: Predicted) -> float:
    """Return the error of the step time, as a share of the published one."""
    return said.seconds / setting.published - 1


def share_below(values: list[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def overall(console: Console, settings: list[Setting], found: dict[str, Predicted]) -> bool:
    """Print the errors of step times and of peak memory, and return whether those of memory are within the limits."""
    steps = [abs(error_of(each, found[each.row["id"]])) for each in settings]
    memory = [
        abs(said.memory / each.memory - 1)
        for each in settings
        if (said := found[each.row["id"]]).memory is not None and each.memory is not None
    ]
    for what, errors, reach in (("step time", steps, "8 % / 20 %"), ("peak memory", memory, "4 % / 10 %")):
        told = f"median {median(errors):.1%}, 90th percentile {share_below(errors, 0.9):.1%}"
        console.print(f"{what}, {len(errors)} rows: {told} (to reach {reach})")
    return median(memory) <= REACH_MEMORY[0] and share_below(memory, 0.9) <= REACH_MEMORY[1]


def main() -> int:
    console = Console(width=140)
    if not ROWS.exists():
        console.print("The folder shared/data beside the repository is absent: there are no published rows to read.")
        return 0
    every = read_rows()
    known = [setting for setting in every if not setting.missing]
    if "--small" in sys.argv:
        known = [each for each in known if each.work <= MAX_SMALL_PARTS]
    found = table_of(console, known)
    by_source(console, known, found)
    good = overall(console, known, found)
    good &= scaling(console)
    for words, reach in REACH_MEDIAN.items():
        mine = [each for each in known if words in each.row["source"]]
        error = median(abs(error_of(each, found[each.row["id"]])) for each in mine)
        good &= error <= reach
        console.print(f"{words}: median error {error:.1%} (reach {reach:.0%})")
    apart = dict(ratios(known, found))
    console.print(
        f"zero-bubble ratios to 1F1B: at most {max(map(abs, apart.values())):.1%} off (reach {REACH_RATIO:.0%})"
    )
    good &= max(map(abs, apart.values())) <= REACH_RATIO
    for setting in every:
        if setting.missing:
            console.print(f"not expressible: {setting.row['id']}, {setting.missing}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

"""Options of `tessel simulate` and `tessel run` that choose the network under a strategy, or the program of a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import typer

from tessel_core.cli.graph import asked_module
from tessel_core.cli.output import as_typed, option, print_notes
from tessel_core.cli.simulation_problem import (
    BUCKET_MIB,
    Bucket,
    assignments,
    bucket_bytes,
    given_sizes,
    named_family,
    number_or_text,
)
from tessel_core.errors import InputError, nearest
from tessel_core.formats.files import read_bytes
from tessel_core.formats.onnx.sizes import open_sizes
from tessel_core.ir.operators.formats import FP8
from tessel_core.ir.transforms.attention import AttentionKernel
from tessel_core.ir.transforms.checkpoint import Recompute
from tessel_core.ir.transforms.context import ContextMethod
from tessel_core.networks.programs.program_file import ProgramFile, read_program_file
from tessel_core.strategies.families import FAMILIES, Family, NetworkFamily, Spec
from tessel_core.strategies.orders import DEFAULT_ORDER, INTERLEAVED_ORDER, chain_schedulers, usual_order
from tessel_core.strategies.ranks import DEFAULT_RANK_ORDER, DISTIR_RANK_ORDER, read_rank_order
from tessel_core.strategies.strategy import Strategy
from tessel_core.units import counted

_OF_GPT = ("hidden", "heads", "vocabulary", "sequence")
_OF_FAMILIES = ("size", "layers", "width", *_OF_GPT, "batch", "dtype", "mode", "tokens_before")


def _choices(family: str, name: str) -> str:
    return ", ".join(next(size.choices for size in FAMILIES[family].sizes if size.name == name))


_Hidden = Annotated[int | None, typer.Option(help="Hidden size of a GPT. Default: as in --size.")]
_Heads = Annotated[int | None, typer.Option(help="Attention heads of a GPT. Default: as in --size.")]
_Vocabulary = Annotated[int | None, typer.Option(help="Vocabulary size of a GPT in tokens. Default: as in --size.")]
_Sequence = Annotated[int | None, typer.Option(help="Sequence length of a GPT in tokens. Default: as in --size.")]
_TokensBefore = Annotated[int | None, typer.Option(help="Tokens of the prompt, or before the decoded token.")]
_Context = Annotated[
    int,
    typer.Option(
        help="Context-parallel degree: devices that share the tokens of each sample. Raising it saves memory for "
        "activations and adds communication in attention."
    ),
]
_ContextMethod = Annotated[
    ContextMethod,
    typer.Option(
        help="Attention under --context. ring: keys and values go round the devices; all-to-all: each device gets all "
        "tokens of some heads."
    ),
]
_Expert = Annotated[
    int,
    typer.Option(
        help="Expert-parallel degree: devices, out of those of --data, --tensor and --context, that share the experts. "
        "Raising it saves memory for experts and adds all-to-alls."
    ),
]
_SequenceParallel = Annotated[
    bool,
    typer.Option(
        "--sequence-parallel",
        help="With --tensor: also cut the activations between cut layers along the tokens, and the vocabulary.",
    ),
]
_Reshard = Annotated[
    bool,
    typer.Option(
        help="With --zero 3: free gathered weights after the forward of a layer, and gather them again "
        "for its backward."
    ),
]
_GradDtype = Annotated[
    str | None, typer.Option(help="Number format of summed gradients: fp32, bf16. Default: that of the weights.")
]
_MicroBatches = Annotated[
    int | None,
    typer.Option(
        help="Micro-batches per replica and step. More of them shorten the bubble of a pipeline. Default: 1; for a "
        "plan, 8."
    ),
]
_MicroBatchSize = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Samples per micro-batch. With --micro-batches, it determines --batch; without, it divides the batch.",
    ),
]
_Order = Annotated[
    str | None,
    typer.Option(
        help=f"Schedule of the pipeline: {', '.join(chain_schedulers())}. "
        f"Default: {DEFAULT_ORDER}; with several stages per device, {INTERLEAVED_ORDER}."
    ),
]
_StagesPerDevice = Annotated[
    int,
    typer.Option(
        help="Pipeline stages per device. Stages go to the devices in turn, this many times. More of them shorten the "
        "bubble and add transfers."
    ),
]
_Layout = Annotated[
    str | None,
    typer.Option(metavar="LIST", help="Layers per pipeline stage, such as 11,10,10,9. Default: equal numbers."),
]
_Recompute = Annotated[
    Recompute,
    typer.Option(
        help="Operators whose results are not kept for the backward but computed again. none; selective: every second "
        "matrix product of a layer and all cheap operators, or only the core of attention with --attention unfused; "
        "full: whole layers. Recomputing more saves memory and takes time."
    ),
]
_Attention = Annotated[
    AttentionKernel,
    typer.Option(
        help="Attention kernel. fused: the fastest fused kernel; flash2: FlashAttention 2; unfused: one kernel per "
        "step, which keeps the scores in memory."
    ),
]
_Zero = Annotated[
    int,
    typer.Option(
        min=0,
        max=3,
        help="ZeRO stage: what the replicas shard. 0: nothing; 1: optimizer state; 2: also gradients; 3: also weights "
        "(FSDP). A higher stage saves memory and can add communication.",
    ),
]
_Dtype = Annotated[
    str | None,
    typer.Option(
        help="Number format: fp32, fp16, bf16, or fp8. With fp8, linear layers compute in FP8 and all else in bf16."
    ),
]
_Compiled = Annotated[
    bool, typer.Option("--compiled", help="Fuse pointwise operators of each layer, as torch.compile does.")
]
_EagerLoss = Annotated[
    bool,
    typer.Option(
        "--eager-loss", help="With --compiled: do not fuse the loss, which then holds copies of the logits in fp32."
    ),
]
_Sizes = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Option of the network (`tessel graph` lists them), or a size that an ONNX file leaves open. Repeatable.",
    ),
]


def refuse_all_but(allowed: Collection[str], given: Any, why: str) -> None:
    """Raise InputError with the reason `why` if the user gave an option of the dataclass that is not allowed."""
    for field in fields(given):
        if field.name not in allowed and getattr(given, field.name) != field.default:
            raise InputError("--set" if field.name == "sizes" else option(field.name), why)


def _layers(text: str) -> tuple[int, ...]:
    """Parse the layers per stage. Raises InputError unless `text` is a list of whole numbers."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError("--layout", f"must be whole numbers such as 11,10,10,9, got {text[:80]!r}")
    return tuple(map(int, parts))


def _names() -> list[str]:
    """Return the names of all families and presets."""
    from tessel_core.networks.graphs.table import GRAPHS

    return [*FAMILIES, *(name for known in GRAPHS.values() for name in known.presets)]


@dataclass(frozen=True)
class AskedNetwork:
    """Options of `tessel simulate` and `tessel run`, one attribute per option."""

    what: Annotated[
        str,
        typer.Argument(
            help=f"Network family ({', '.join(FAMILIES)}), preset (`tessel graph` lists them) or file: a Hugging Face "
            "config, the text of a program, or an ONNX model. `tessel run` also takes a schedule, plan, sample or toy."
        ),
    ]
    size: Annotated[str | None, typer.Option(help=f"Published size of a GPT: {_choices('gpt', 'size')}.")] = None
    layers: Annotated[int | None, typer.Option(help="Number of layers.")] = None
    width: Annotated[int | None, typer.Option(help="Width of an MLP: elements between layers.")] = None
    hidden: _Hidden = None
    heads: _Heads = None
    vocabulary: _Vocabulary = None
    sequence: _Sequence = None
    batch: Annotated[int | None, typer.Option(help="Samples per step, over all replicas.")] = None
    dtype: _Dtype = None
    mode: Annotated[str | None, typer.Option(help=f"Work of a GPT: {_choices('gpt', 'mode')}.")] = None
    tokens_before: _TokensBefore = None
    data: Annotated[int, typer.Option(help="Data-parallel degree: replicas that share the batch.")] = 1
    tensor: Annotated[
        int,
        typer.Option(
            help="Tensor-parallel degree: devices that share each layer. Raising it saves memory and adds "
            "communication."
        ),
    ] = 1
    sequence_parallel: _SequenceParallel = False
    context: _Context = 1
    context_method: _ContextMethod = ContextMethod.RING
    expert: _Expert = 1
    pipeline: Annotated[int, typer.Option(help="Pipeline-parallel degree: devices along the pipeline.")] = 1
    stages_per_device: _StagesPerDevice = 1
    layout: _Layout = None
    micro_batches: _MicroBatches = None
    micro_batch_size: _MicroBatchSize = None
    schedule: _Order = None
    recompute: _Recompute = Recompute.NONE
    attention: _Attention = AttentionKernel.FUSED
    zero: _Zero = 0
    reshard: _Reshard = True
    grad_dtype: _GradDtype = None
    rank_order: Annotated[
        str | None,
        typer.Option(
            metavar="LIST",
            help="Order of the parallel dimensions, innermost first. Devices of the first one are neighbours. Default: "
            f"{','.join(DEFAULT_RANK_ORDER)}; with --compat distir, {','.join(DISTIR_RANK_ORDER)}.",
        ),
    ] = None
    bucket: Bucket = BUCKET_MIB
    compiled: _Compiled = False
    eager_loss: _EagerLoss = False
    sizes: _Sizes = None
    torch: Annotated[
        bool,
        typer.Option(
            "--torch",
            help="Take the argument as FILE.py:FUNCTION and execute it. It returns a PyTorch module and its inputs.",
        ),
    ] = False

    @property
    def in_family(self) -> bool:
        """Whether the argument is a network family, a preset or a config. If not, it is the file of a program."""
        return self._named is not None

    @cached_property
    def _named(self) -> tuple[Family, Mapping[str, Any]] | None:
        return None if self.torch else named_family(self.what)

    @property
    def strategy(self) -> Strategy:
        """The parallel strategy.

        Raises InputError for an invalid degree or rank order, or if micro-batches do not divide the batch.
        """
        return Strategy(
            data=self.data,
            tensor=self.tensor,
            pipeline=self.pipeline,
            micro_batches=self._micro_batches,
            schedule=usual_order(self.stages_per_device) if self.schedule is None else self.schedule,
            recompute=self.recompute,
            zero=self.zero,
            stages_per_device=self.stages_per_device,
            rank_order=None if self.rank_order is None else read_rank_order(self.rank_order, "--rank-order"),
            bucket_bytes=bucket_bytes(self.bucket),
            context=self.context,
            context_method=self.context_method,
            expert=self.expert,
            sequence_parallel=self.sequence_parallel,
            reshard=self.reshard,
            grad_dtype=self.grad_dtype or "",
            attention=self.attention,
            fp8=self.dtype == FP8,
            compiled=self.compiled,
            layout=() if self.layout is None else _layers(self.layout),
            eager_loss=self.eager_loss,
        )

    @property
    def _micro_batches(self) -> int:
        """Micro-batches per replica and step. If only --micro-batch-size is given, the batch determines them."""
        if self.micro_batches is not None or self.micro_batch_size is None or not self.in_family:
            return 1 if self.micro_batches is None else self.micro_batches
        batch, samples = self.network[1].batch, max(1, self.data) * self.micro_batch_size
        if batch % samples:
            why = f"a batch of {batch} does not divide among {counted(self.data, 'replica')} into micro-batches of "
            raise InputError("--micro-batch-size", f"{why}{self.micro_batch_size}")
        return batch // samples

    @property
    def network(self) -> tuple[Family, Spec]:
        """Family and spec of the network. Raises InputError for a size option that the family does not have."""
        assert self._named is not None
        family, said = self._named
        given: dict[str, Any] = {name: getattr(self, name) for name in _OF_FAMILIES}
        given["context"] = given.pop("tokens_before")
        if self.dtype == FP8:
            given["dtype"] = "bf16"
        given |= assignments(self.sizes or ())
        if not isinstance(family, NetworkFamily):
            given = {name: number_or_text(value) for name, value in given.items()}
        if self.micro_batches is not None and self.micro_batch_size is not None:
            batch = self.data * self.micro_batches * self.micro_batch_size
            if self.batch not in (None, batch):
                parts = f"{counted(self.data, 'replica')} of {counted(self.micro_batches, 'micro-batch')}"
                raise InputError("--batch", f"{parts} of {self.micro_batch_size} make {batch}, got {self.batch}")
            given["batch"] = batch
        with as_typed(lambda name: f"--set {name}"):
            return family, family.spec(**{**said, **given_sizes(family, given)})

    def file(self) -> ProgramFile:
        """Read the program of the file, and print its warnings as notes.

        Raises InputError for options that apply only to networks.
        """
        why = "is for networks; a file takes only --set, and --data if it is an ONNX model"
        refuse_all_but(("what", "sizes", "torch", *(() if self.torch else ("data",))), self, why)
        if self.torch:
            found = asked_module(self.what, self.sizes or ())
            return ProgramFile(found.model, found.model)
        path = Path(self.what)
        if not path.suffix and not path.exists():
            hint = nearest(self.what, _names(), f"families are {', '.join(FAMILIES)}, and `tessel graph` lists presets")
            raise InputError(self.what, f"is neither a network nor a file, {hint}")
        file = read_program_file(read_bytes(path), path.name, open_sizes(self.sizes or (), "--set"), self.data)
        print_notes(self.what, file.warnings)
        return file

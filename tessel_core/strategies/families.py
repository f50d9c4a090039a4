"""Families of networks: their sizes, their programs, and in how many parts devices can divide them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

from tessel_core.errors import InputError, find
from tessel_core.ir.distributed import Distributed
from tessel_core.ir.transforms.attention import AttentionKernel, with_attention
from tessel_core.ir.transforms.condensed import Condensed, condensed
from tessel_core.ir.transforms.gradients import Gradients
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.transforms.update import AdamUpdate, Optimizer, SgdUpdate
from tessel_core.networks.decoder import DecoderSpec
from tessel_core.networks.gpt import GPT_SPECS, GptSpec, gpt_decode, gpt_forward, gpt_inference, gpt_spec
from tessel_core.networks.graphs.spec import GraphSpec
from tessel_core.networks.graphs.table import GRAPHS
from tessel_core.networks.mlp import MlpSpec, mlp_forward
from tessel_core.options import changed_options, config_from, options_of

Value = int | float | str


class Spec(Protocol):
    """Sizes of one network. Each family adds its own sizes."""

    @property
    def layers(self) -> int: ...
    @property
    def batch(self) -> int: ...
    @property
    def dtype(self) -> str: ...
    def __hash__(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Size:
    """A size of a family that the user can choose. A size without a default follows from other sizes."""

    name: str
    label: str
    default: Value | None = None
    choices: tuple[str, ...] = ()
    """Allowed words. If there are none, the size is a number (or, for `dtype`, a number format)."""


class Family(ABC):
    """Networks of one kind.

    A family defines the sizes that the user can choose, and builds the program of one device. Its methods accept specs
    that `spec` of the same family returned.
    """

    name: str
    title: str
    sizes: tuple[Size, ...]
    options: tuple[str, ...] = ()
    """Names of further arguments of `spec`. Their values need not be numbers."""
    also: tuple[str, ...] = ()
    """Names of inputs that are not weights but whose gradients training computes, too."""

    @abstractmethod
    def spec(self, *values: Any, **named: Any) -> Spec:
        """Return the spec for values of `sizes`, given in order or by name.

        Raises InputError for impossible values.
        """

    @abstractmethod
    def forward(self, spec: Any) -> Distributed:
        """Return the forward pass on one device. In training, its outputs are the losses."""

    def build(
        self, spec: Any, *, split_weights: bool = False, attention: AttentionKernel = AttentionKernel.FUSED
    ) -> Distributed:
        """Return the program without the optimizer step.

        With `split_weights`, gradients of weights and gradients of activations are separate operations.

        Raises InputError if `attention` is unfused and the network has attention with a bias, which exists only as a
        fused kernel.
        """
        return self.completed(self.forward(spec), spec, split_weights=split_weights, attention=attention)

    def completed(
        self,
        forward: Distributed,
        spec: Any,
        *,
        split_weights: bool = False,
        attention: AttentionKernel = AttentionKernel.FUSED,
    ) -> Distributed:
        """Return the program for a given forward pass of the network, for example one with fewer layers.

        The arguments are those of `build`.
        """
        model = with_attention(attention, forward)
        return model if self.optimizer(spec) is None else Gradients(self.also, split_weights=split_weights)(model)

    def condensed(self, spec: Any) -> Condensed:
        """Return the forward pass in which layers that repeat occur only once."""
        return condensed(self.forward(spec))

    @abstractmethod
    def optimizer(self, spec: Any) -> Optimizer | None:
        """Return the optimizer that ends a training step. None for inference, which also has no backward pass."""

    def sample(self, spec: Any) -> tuple[Spec, float]:
        """Return a spec that `forward` accepts, and the work of `spec` divided by the work of that spec."""
        return spec, 1.0

    @abstractmethod
    def tokens(self, spec: Any) -> int | None:
        """Return the number of tokens per sample that a step processes. None for networks without tokens."""

    @abstractmethod
    def objection(self, spec: Any, tensor: int) -> str:
        """Return why `tensor` devices cannot divide the layers, in one sentence. Empty if they can."""

    @abstractmethod
    def shared_side(self, spec: Any, tensor: int) -> int:
        """Return the length of the weight axis that replicas divide when they divide the optimizer state.

        It is the length on one of `tensor` devices, or 0 if the network does not fix it.
        """

    @abstractmethod
    def sizes_of(self, spec: Any) -> Mapping[str, Value]:
        """Return the sizes that distinguish the network from others of the family in a table."""

    @abstractmethod
    def describe(self, spec: Any) -> str:
        """Return a short text about the network."""

    @abstractmethod
    def with_batch(self, spec: Any, batch: int) -> Spec:
        """Return the spec with `batch` samples per step."""


class MlpFamily(Family):
    """Multi-layer perceptrons, trained with stochastic gradient descent."""

    name = "mlp"
    also = ("x",)
    title = "Multi-layer perceptron, training"
    sizes = (
        *(Size("layers", "Layers", 8), Size("width", "Width", 512), Size("batch", "Batch", 256)),
        Size("dtype", "Formats", "fp16"),
    )

    def spec(self, *values: Any, **named: Any) -> MlpSpec:
        defaults = {size.name: size.default for size in self.sizes[len(values) :]}
        return MlpSpec(*values, **{**defaults, **named})

    def forward(self, spec: MlpSpec) -> Distributed:
        return mlp_forward(spec)

    def optimizer(self, spec: MlpSpec) -> Optimizer:
        return SgdUpdate()

    def tokens(self, spec: MlpSpec) -> None:
        return None

    def objection(self, spec: MlpSpec, tensor: int) -> str:
        """Return an objection if `tensor` does not divide the width. Weights are divided by columns and by rows."""
        return f"a width of {spec.width} does not divide among {tensor} devices" if spec.width % tensor else ""

    def shared_side(self, spec: MlpSpec, tensor: int) -> int:
        """Return the length of the axis that tensor parallelism does not divide."""
        return spec.width

    def sizes_of(self, spec: MlpSpec) -> Mapping[str, Value]:
        return {"layers": spec.layers, "width": spec.width, "batch": spec.batch, "dtype": spec.dtype}

    def with_batch(self, spec: MlpSpec, batch: int) -> MlpSpec:
        return replace(spec, batch=batch)

    def describe(self, spec: MlpSpec) -> str:
        """Return a text such as `8 x 512, batch 256, fp16`."""
        return f"{spec.layers} x {spec.width}, batch {spec.batch}, {spec.dtype}"


MODES = ("training", "prefill", "decode")
_WORDS = ("size", "mode", "context")


@dataclass(frozen=True, slots=True)
class GptWork:
    """A GPT, and what it does: training, prefill or decoding.

    Raises InputError for an unknown mode, and if there are more tokens than the network has positions.
    """

    network: GptSpec
    mode: str = "training"
    context: int = 0
    """Tokens of the prompt in prefill, or tokens before the new one in decoding. 0 in training."""

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InputError("mode", f"must be one of {', '.join(MODES)}, got {self.mode!r}")
        most = {"training": 0, "prefill": self.network.sequence, "decode": self.network.sequence - 1}[self.mode]
        least = int(self.mode != "training")
        if not least <= self.context <= most:
            why = "training uses whole sequences" if not most else f"{self.mode} takes {least} to {most} tokens"
            raise InputError("tokens-before", f"{why}, got {self.context}")

    @property
    def layers(self) -> int:
        """Number of layers."""
        return self.network.layers

    @property
    def batch(self) -> int:
        """Samples per step."""
        return self.network.batch

    @property
    def dtype(self) -> str:
        """Number format of weights and activations."""
        return self.network.dtype


class GptFamily(Family):
    """GPT-2, GPT-3 and similar networks, trained with Adam."""

    name = "gpt"
    title = "GPT, training and inference"
    sizes = (
        Size("size", "Size", "gpt2", tuple(GPT_SPECS)),
        Size("layers", "Layers"),
        Size("hidden", "Hidden size"),
        Size("heads", "Heads"),
        Size("vocabulary", "Vocabulary"),
        Size("sequence", "Sequence"),
        Size("batch", "Batch", 32),
        Size("dtype", "Formats", "bf16"),
        Size("mode", "Mode", "training", MODES),
        Size("context", "Tokens before"),
    )
    options = ("dropout",)

    def spec(self, *values: Any, **named: Any) -> GptWork:
        """Return the spec of a published size. `values` and `named` replace its own values."""
        asked = {size.name: size.default for size in self.sizes if size.default is not None}
        asked |= dict(zip((size.name for size in self.sizes), values, strict=False)) | named
        numbers = {name: value for name, value in asked.items() if name not in _WORDS}
        network = replace(gpt_spec(str(asked["size"])), **numbers)  # type: ignore[arg-type]
        mode = str(asked["mode"])
        usual = {"prefill": network.sequence, "decode": network.sequence - 1}.get(mode, 0)
        return GptWork(network, mode, asked.get("context", usual))  # type: ignore[arg-type]

    def forward(self, spec: GptWork) -> Distributed:
        if spec.mode == "training":
            return gpt_forward(spec.network)
        if spec.mode == "prefill":
            return gpt_inference(spec.network, spec.context)
        return gpt_decode(spec.network, spec.context)

    def condensed(self, spec: GptWork) -> Condensed:
        """Return the forward pass with three layers at most.

        The first layer also embeds the tokens, and the last also has the projection. All layers between are equal.
        """
        few = min(spec.layers, 3)
        model = self.forward(replace(spec, network=replace(spec.network, layers=few)))
        return Condensed(model, (*(min(i, 1) for i in range(spec.layers - 1)), few - 1))

    def optimizer(self, spec: GptWork) -> Optimizer | None:
        """Return Adam with fp32 state for training, and None for inference."""
        return AdamUpdate() if spec.mode == "training" else None

    def tokens(self, spec: GptWork) -> int:
        return {"training": spec.network.sequence, "prefill": spec.context, "decode": 1}[spec.mode]

    def objection(self, spec: GptWork, tensor: int) -> str:
        """Return an objection if the heads do not divide. If they divide, the hidden size divides, too."""
        heads = spec.network.heads
        return f"{heads} heads do not divide among {tensor} devices" if heads % tensor else ""

    def shared_side(self, spec: GptWork, tensor: int) -> int:
        """Return the length of the embedding's hidden axis, which tensor parallelism divides."""
        return spec.network.hidden // tensor

    def sizes_of(self, spec: GptWork) -> Mapping[str, Value]:
        """Return all sizes, including those that the name of a published size implies."""
        sizes = asdict(spec.network)
        del sizes["positions"]  # Strategies use as many positions as a sequence has tokens.
        if not spec.network.dropout:
            del sizes["dropout"]
        return {**sizes, "mode": spec.mode, "context": spec.context}

    def with_batch(self, spec: GptWork, batch: int) -> GptWork:
        return replace(spec, network=replace(spec.network, batch=batch))

    def describe(self, spec: GptWork) -> str:
        """Return a text such as `48 x 1600, decode after 1023, batch 32, bf16`.

        The mode is followed by its number of tokens.
        """
        tokens = {"training": spec.network.sequence, "prefill": spec.context, "decode": f"after {spec.context}"}
        work = f"{spec.mode} {tokens[spec.mode]}"
        dropout = f", dropout {spec.network.dropout}" if spec.network.dropout else ""
        return f"{spec.layers} x {spec.network.hidden}, {work}, batch {spec.batch}, {spec.dtype}{dropout}"


TRAINING, INFERENCE = "training", "inference"


@dataclass(frozen=True, slots=True)
class NetworkWork:
    """A network of the table `GRAPHS`, with a whole batch."""

    family: str
    options: GraphSpec
    """Options of the network. Their micro-batch is the whole batch of a step."""

    @property
    def layers(self) -> int:
        """Number of layers. A pipeline can be divided between any two of them."""
        return _layers(self.family, replace(self.options, micro_batch=1))

    @property
    def batch(self) -> int:
        """Samples per step."""
        return self.options.micro_batch

    @property
    def dtype(self) -> str:
        """Number format of weights and activations."""
        return self.options.dtype


@lru_cache(maxsize=256)
def _layers(family: str, options: GraphSpec) -> int:
    return 1 + max(op.tag.stage or 0 for op in GRAPHS[family].program(options).program.ops)


class NetworkFamily(Family):
    """A family of the table `GRAPHS`. Training uses Adam."""

    def __init__(self, name: str) -> None:
        known = GRAPHS[name]
        self.name, self.title, self._known = name, f"{known.title}, training and inference", known
        common = options_of(GraphSpec)
        own = {key: asked for key, asked in options_of(known.spec).items() if key not in common}
        self._own = self.options = tuple(own)
        numbers = {key: shown for key, (shown, usual) in own.items() if type(usual) is int}
        self.sizes = (
            Size("size", "Size", next(iter(known.presets)), tuple(known.presets)),
            *(Size(key, shown.label) for key, shown in numbers.items()),
            Size("batch", "Batch", 32),
            Size("dtype", "Formats", "bf16"),
            Size("mode", "Mode", TRAINING, (TRAINING, INFERENCE)),
        )

    def spec(self, *values: Any, **named: Any) -> NetworkWork:
        """Return the spec of a published size. `values` and `named` replace its own values."""
        asked = {size.name: size.default for size in self.sizes if size.default is not None}
        asked |= dict(zip((size.name for size in self.sizes), values, strict=False)) | named
        preset = find(self._known.presets, str(asked["size"]), "size")
        if asked["mode"] not in (TRAINING, INFERENCE):
            raise InputError("mode", f"must be {TRAINING} or {INFERENCE}, got {asked['mode']!r}")
        own = {name: asked[name] for name in self._own if name in asked}
        how = {"micro_batch": asked["batch"], "dtype": asked["dtype"], "training": asked["mode"] == TRAINING}
        options = config_from(type(preset), changed_options(preset) | own | how)
        return NetworkWork(self.name, options)

    def forward(self, spec: NetworkWork) -> Distributed:
        return self._known.program(spec.options)

    def optimizer(self, spec: NetworkWork) -> Optimizer | None:
        """Return Adam with fp32 state for training, and None for inference."""
        return AdamUpdate() if spec.options.training else None

    def tokens(self, spec: NetworkWork) -> int | None:
        """Return the number of tokens per sample of a decoder. None for other networks."""
        return spec.options.tokens if isinstance(spec.options, DecoderSpec) else None

    def objection(self, spec: NetworkWork, tensor: int) -> str:
        """Return the objection of the network itself, or an objection to the first weight that does not divide."""
        return _objection(self.name, spec.options, tensor)

    def shared_side(self, spec: NetworkWork, tensor: int) -> int:
        """Return 0. If an axis does not divide, the error is raised when the optimizer state is divided."""
        return 0

    def sizes_of(self, spec: NetworkWork) -> Mapping[str, Value]:
        """Return the sizes that only this family has, the batch, the number format and the mode."""
        own: dict[str, Value] = {name: getattr(spec.options, name) for name in self._own}
        mode = TRAINING if spec.options.training else INFERENCE
        return {**own, "batch": spec.batch, "dtype": spec.dtype, "mode": mode}

    def with_batch(self, spec: NetworkWork, batch: int) -> NetworkWork:
        return replace(spec, options=replace(spec.options, micro_batch=batch))

    def describe(self, spec: NetworkWork) -> str:
        """Return a text such as `mt5, hidden 1024, training, batch 32, bf16`."""
        words = [f"{name} {value}" for name, value in changed_options(spec.options).items() if name in self._own]
        mode = TRAINING if spec.options.training else INFERENCE
        return ", ".join((self.name, *words, mode, f"batch {spec.batch}", spec.dtype))


@lru_cache(maxsize=256)
def _objection(family: str, options: GraphSpec, tensor: int) -> str:
    if options.micro_batch > 1:  # the batch does not matter
        return _objection(family, replace(options, micro_batch=1), tensor)
    try:
        TensorParallel(tensor)(GRAPHS[family].program(replace(options, tensor_parallel=tensor)))
    except InputError as error:
        return str(error)
    return ""


FAMILIES: Mapping[str, Family] = {
    each.name: each
    for each in (MlpFamily(), GptFamily(), *(NetworkFamily(name) for name in GRAPHS if name not in ("mlp", "gpt")))
}


def find_family(name: str) -> Family:
    """Return the family called `name`. Raises InputError with all known names if there is none."""
    return find(FAMILIES, name, "family")

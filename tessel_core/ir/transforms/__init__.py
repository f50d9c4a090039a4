"""Ways to distribute a program: frozen dataclasses that are called with a model and return another.

They compose in this order, each optional: `Checkpoint`, `TensorParallel`, `Pipeline`, `DataParallel`, and last one
optimizer, plain or inside a `ShardedOptimizer`.  A program that no builder here made gets the roles that `DataParallel`
asks for by `with_samples`.
"""

from tessel_core.ir.transforms.checkpoint import Checkpoint
from tessel_core.ir.transforms.data import DataParallel
from tessel_core.ir.transforms.pipeline import Pipeline
from tessel_core.ir.transforms.samples import with_samples
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.transforms.update import AdamUpdate, Optimizer, SgdUpdate, ShardedOptimizer, part_shape

__all__ = [
    "AdamUpdate",
    "Checkpoint",
    "DataParallel",
    "Optimizer",
    "Pipeline",
    "SgdUpdate",
    "ShardedOptimizer",
    "TensorParallel",
    "part_shape",
    "with_samples",
]

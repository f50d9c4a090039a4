"""Ways to distribute a program: frozen dataclasses that are called with a model and return another, and compose."""

from tessel_core.ir.transforms.data import DataParallel
from tessel_core.ir.transforms.pipeline import Pipeline, stage_devices
from tessel_core.ir.transforms.tensor import TensorParallel
from tessel_core.ir.transforms.update import SgdUpdate

__all__ = ["DataParallel", "Pipeline", "SgdUpdate", "TensorParallel", "stage_devices"]

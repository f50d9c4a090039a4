"""Read ONNX models node by node, with FLOPs and bytes.  Only this package imports onnx."""

from tessel_core.formats.onnx.network import OnnxNetwork, OnnxNode
from tessel_core.formats.onnx.reader import OnnxModel

__all__ = ["OnnxModel", "OnnxNetwork", "OnnxNode"]

"""ONNX models node by node, with FLOPs and bytes: the only room that knows the onnx package."""

from tessel_core.formats.onnx.network import OnnxNetwork, OnnxNode
from tessel_core.formats.onnx.reader import OnnxModel

__all__ = ["OnnxModel", "OnnxNetwork", "OnnxNode"]

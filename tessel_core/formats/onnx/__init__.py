"""ONNX models as operator graphs with FLOPs and bytes, or node by node: the only room that knows the onnx package."""

from tessel_core.formats.onnx.network import OnnxNetwork, OnnxNode
from tessel_core.formats.onnx.reader import OnnxModel, read_onnx, read_onnx_network

__all__ = ["OnnxModel", "OnnxNetwork", "OnnxNode", "read_onnx", "read_onnx_network"]

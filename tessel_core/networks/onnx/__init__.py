"""Convert ONNX models to programs, with one operation per node, and to operator graphs."""

from tessel_core.networks.onnx.graph import OnnxSpec, model_graph, network_graph, network_program, spec_from
from tessel_core.networks.onnx.program import OnnxProgram, onnx_program

__all__ = [
    "OnnxProgram",
    "OnnxSpec",
    "model_graph",
    "network_graph",
    "network_program",
    "onnx_program",
    "spec_from",
]

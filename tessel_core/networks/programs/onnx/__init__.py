"""ONNX models as programs: every node one operation, weights as inputs."""

from tessel_core.networks.programs.onnx.program import OnnxProgram, onnx_program

__all__ = ["OnnxProgram", "onnx_program"]

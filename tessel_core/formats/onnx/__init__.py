"""ONNX models as operator graphs with FLOPs and bytes: the only room that knows the onnx package."""

from tessel_core.formats.onnx.reader import LARGEST_ONNX, looks_like_onnx, read_onnx

__all__ = ["LARGEST_ONNX", "looks_like_onnx", "read_onnx"]

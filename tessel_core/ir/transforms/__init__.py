"""Ways to distribute a program: frozen dataclasses that are called with a model and return another model.

They compose in this order, each optional: `UnfusedAttention`, `Gradients`, `Checkpoint`, `TensorParallel`, `Pipeline`,
`DataParallel`, and last one optimizer, plain or inside a `ShardedOptimizer`. `DataParallel` needs to know which axes
hold samples. `with_samples` finds them for a program that no builder here wrote.
"""

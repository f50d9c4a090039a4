"""Transforms that distribute a program. Each is a frozen dataclass that is called with a model and returns a new model.

All transforms are optional. They are applied in this order: `UnfusedAttention`, `Gradients`, `Checkpoint`,
`TensorParallel`, `Pipeline`, `DataParallel`, and last an optimizer, alone or inside a `ShardedOptimizer`.
`DataParallel` needs to know which axes hold samples. For a program that was read from a file, `with_samples` finds
them.
"""

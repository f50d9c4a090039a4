"""Rules of convolutions and pools."""

from __future__ import annotations

from tessel_core.networks.programs.onnx.use import Rule, Said, Shape, Use


def _swept(use: Use, kernel: Shape) -> dict[str, Shape] | None:
    """Dilations, pads and strides, spelled out; the pads at the end reach as far as the outputs do.

    None where the sizes do not say how the windows lie.
    """
    spatial = len(kernel)
    ones = (1,) * spatial
    strides, dilations = use.integers("strides") or ones, use.integers("dilations") or ones
    if not len(strides) == len(dilations) == len(use.shape) - 2 == spatial:
        return None
    pads = use.integers("pads") or (0,) * (2 * spatial)
    how = use.text("auto_pad", "NOTSET")
    before, after = list(pads[:spatial]), list(pads[spatial:])
    for axis in range(spatial):
        size, made = use.shape[2 + axis], use.made[2 + axis]
        needed = (made - 1) * strides[axis] + (kernel[axis] - 1) * dilations[axis] + 1 - size
        if how.startswith("SAME"):
            total = max(needed, 0)
            before[axis] = total // 2 if how == "SAME_UPPER" else total - total // 2
            after[axis] = total - before[axis]
        elif use.integer("ceil_mode", 0):
            after[axis] = max(after[axis], needed - before[axis])
    return {"dilations": dilations, "pads": (*before, *after), "strides": strides}


def _conv(use: Use) -> Said | None:
    swept = _swept(use, use.shape_of(1)[2:])
    return None if swept is None else use.say("conv", groups=use.integer("group", 1), **swept)


def _max_pool(use: Use) -> Said | None:
    if not use.makes_one:
        return None
    kernel = use.integers("kernel_shape") or ()
    swept = _swept(use, kernel)
    return None if swept is None else use.say("max_pool", kernel=kernel, **swept)


def _average_pool(use: Use) -> Said | None:
    """What is beyond the pads, where sizes are rounded up, never counts, so it cannot be said with pads that do."""
    kernel = use.integers("kernel_shape") or ()
    swept, counts = _swept(use, kernel), use.integer("count_include_pad", 0)
    if swept is None or (counts and use.integer("ceil_mode", 0)):
        return None
    return use.say("average_pool", count_pads=counts, kernel=kernel, **swept)


WINDOWS: dict[str, Rule] = {"Conv": _conv, "MaxPool": _max_pool, "AveragePool": _average_pool}

"""How much memory PyTorch takes for tensors: its caching allocator hands out blocks of larger segments."""

from __future__ import annotations

from dataclasses import dataclass

MIB = 1 << 20
_SMALLEST = 512
_SMALL_SEGMENT = 2 * MIB
_SEGMENT = 20 * MIB
_OF_ITS_OWN = 10 * MIB
"""From this size a block gets a segment of its own, in steps of 2 MiB."""


@dataclass(frozen=True, order=True, slots=True)
class Block:
    """A stretch of one segment; ordered as the allocator prefers free ones."""

    size: int
    segment: int
    offset: int


class CachingAllocator:
    """Blocks by best fit, as PyTorch does it by default [c10/cuda/CUDACachingAllocator.cpp].

    Sizes are multiples of 512 bytes.  Up to 1 MiB blocks come from segments of 2 MiB, others from segments of 20 MiB or
    of their own.  What is left of a free block stays free; of a large one, a rest of up to 1 MiB stays with the block.
    """

    def __init__(self) -> None:
        self.used = 0
        """Bytes of all blocks that are handed out."""
        self._free: dict[bool, list[Block]] = {True: [], False: []}
        self._segments = 0

    def allocate(self, size: int) -> Block:
        """A block for a tensor of `size` bytes."""
        needed = -(-size // _SMALLEST) * _SMALLEST
        is_small = needed <= MIB
        free = self._free[is_small]
        fitting = [block for block in free if block.size >= needed]
        found = min(fitting) if fitting else self._segment(needed)
        if fitting:
            free.remove(found)
        rest = found.size - needed
        if rest > (0 if is_small else MIB):
            free.append(Block(rest, found.segment, found.offset + needed))
            found = Block(needed, found.segment, found.offset)
        self.used += found.size
        return found

    def release(self, block: Block) -> None:
        """Free a block; it joins its free neighbours."""
        self.used -= block.size
        is_small = block.size <= MIB
        free = self._free[is_small]
        for other in [each for each in free if each.segment == block.segment]:
            first, second = sorted((block, other), key=lambda each: each.offset)
            if first.offset + first.size == second.offset:
                free.remove(other)
                block = Block(first.size + second.size, first.segment, first.offset)
        free.append(block)

    def _segment(self, needed: int) -> Block:
        self._segments += 1
        if needed <= MIB:
            return Block(_SMALL_SEGMENT, self._segments, 0)
        own = -(-needed // _SMALL_SEGMENT) * _SMALL_SEGMENT
        return Block(_SEGMENT if needed < _OF_ITS_OWN else own, self._segments, 0)

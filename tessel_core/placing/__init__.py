"""What one person decides between an operator graph and its schedule."""

from tessel_core.placing.placing import ALL_OBJECTIVES, Placing, first_mesh

__all__ = ["ALL_OBJECTIVES", "Placing", "first_mesh"]

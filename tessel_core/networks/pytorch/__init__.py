"""Convert a user's PyTorch module to a program.

The module's file is executed, and the module exported without weights.
"""

from tessel_core.networks.pytorch.program import ImportedModule, import_module

__all__ = ["ImportedModule", "import_module"]

"""Convert a user's PyTorch module to a program: execute its file, and export the module without weights."""

from tessel_core.networks.pytorch.program import ImportedModule, import_module

__all__ = ["ImportedModule", "import_module"]

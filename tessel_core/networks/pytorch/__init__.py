"""A person's own PyTorch module as a program: its file is executed, and the module exported without weights."""

from tessel_core.networks.pytorch.program import ImportedModule, import_module

__all__ = ["ImportedModule", "import_module"]

"""The distributed program: an ordered list of typed operations, and the devices that run them."""

from tessel_core.ir.text import read_program

__all__ = ["read_program"]

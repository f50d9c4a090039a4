"""The distributed program: typed operations on devices, in the order in which they are issued."""

from tessel_core.ir.text import read_program

__all__ = ["read_program"]

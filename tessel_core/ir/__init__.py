"""The distributed program: typed operations on devices, in the order in which they are issued."""

from tessel_core.ir.builder import ProgramBuilder
from tessel_core.ir.execute import execute
from tessel_core.ir.operators import OPERATORS, find_operator
from tessel_core.ir.program import Op, Program, Tag
from tessel_core.ir.project import RankProgram, project, rank_text
from tessel_core.ir.text import op_text, program_text, read_program
from tessel_core.ir.types import HOST, TensorType
from tessel_core.ir.verify import verify

__all__ = [
    "HOST",
    "OPERATORS",
    "Op",
    "Program",
    "ProgramBuilder",
    "RankProgram",
    "Tag",
    "TensorType",
    "execute",
    "find_operator",
    "op_text",
    "program_text",
    "project",
    "rank_text",
    "read_program",
    "verify",
]

"""Textual form of programs, which can be read, compared line by line, written by hand, and parsed back.

program pair
%x: fp32[4, 8]@1
%w: fp32[8, 2]@1
%2: fp32[4, 2]@1 = matmul(%x, %w) ; stage 0 micro-batch 1 forward of layer0/product
%3: fp32[4, 2]@2 = send(%2) {to=2}
return %3
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote, unquote

from tessel_core.errors import InputError
from tessel_core.ir.program import UNTAGGED, Attributes, AttributeValue, Op, Program, Tag
from tessel_core.ir.types import TensorType, interned
from tessel_core.ir.verify import verify

_MAX_LINES = 2_000_000
_VALUE = r"%([A-Za-z0-9_.'/-]+)"
_TYPE = r"([a-z0-9]+)\[([0-9, ]*)\]@(\d+)"
_TYPED = re.compile(rf"{_VALUE}: {_TYPE}")
_OP = re.compile(
    r"(?P<made>%.*?)? ?= (?P<kind>\w+)\((?P<taken>[^)]*)\)(?: \{(?P<attributes>[^}]*)\})?(?: ; (?P<tag>.*))?"
)
_ESCAPED = re.compile(r"[\s{};%]")
"""Characters in an operator's name that are percent-encoded in the text."""
_TAG = re.compile(r"(?:stage (\d+) ?)?(?:micro-batch (\d+) ?)?([a-z]*)(?: of ([^\s{};]+))?")


def program_text(program: Program) -> str:
    """Return the text of a program, one line per operation."""
    return "\n".join(_lines(program)) + "\n"


def _lines(program: Program) -> Iterator[str]:
    yield f"program {program.name}"
    yield from (typed_text(program, value) for value in program.inputs)
    for op in program.ops:
        yield op_text(program, op)
    yield f"return {', '.join(f'%{program.value_name(value)}' for value in program.outputs)}".rstrip()


def op_text(program: Program, op: Op) -> str:
    """Return the line of text for an operation."""
    made = ", ".join(typed_text(program, value) for value in op.outputs)
    taken = ", ".join(f"%{program.value_name(value)}" for value in op.inputs)
    return f"{made} = {op.kind}({taken})" + attributes_text(op.attributes) + tag_text(op.tag)


def typed_text(program: Program, value: int) -> str:
    """Return the name, type and device of a value, as written where it is defined."""
    return f"%{program.value_name(value)}: {program.types[value]}"


def attributes_text(attributes: Attributes) -> str:
    """Return attributes as they are written after the inputs of an operation, or "" if there are none."""
    found = ", ".join(f"{name}={_attribute_text(value)}" for name, value in attributes)
    return f" {{{found}}}" if found else ""


def _attribute_text(value: AttributeValue) -> str:
    return f"({' '.join(map(str, value))})" if isinstance(value, tuple) else repr(value)


def tag_text(tag: Tag) -> str:
    """Return a tag as it is written at the end of a line, or "" if the tag is empty."""
    stage = "" if tag.stage is None else f"stage {tag.stage}"
    micro_batch = "" if tag.micro_batch is None else f"micro-batch {tag.micro_batch}"
    of = f"of {_ESCAPED.sub(lambda found: quote(found[0]), tag.name)}" if tag.name else ""
    found = " ".join(filter(None, (stage, micro_batch, tag.phase, of)))
    return f" ; {found}" if found else ""


def read_program(text: str, name: str = "program") -> Program:
    """Parse and verify the text of a program. Raises InputError with the line number and the reason."""
    lines = text.splitlines()
    if len(lines) > _MAX_LINES:
        raise InputError(name, f"has {len(lines):,} lines, more than the {_MAX_LINES:,} allowed")
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        try:
            reader.take(line.strip())
        except InputError as error:
            raise InputError(f"{name}: line {number}", error.why) from None
        except ValueError:
            # Python refuses to parse integers with thousands of digits.
            raise InputError(f"{name}: line {number}", "has a number with too many digits") from None
    try:
        program = reader.program()
        verify(program)
    except InputError as error:
        raise error.within(name) from None
    return program


class _Reader:
    def __init__(self) -> None:
        self._name: str | None = None
        self._types: list[TensorType] = []
        self._numbers: dict[str, int] = {}
        self._inputs: list[int] = []
        self._ops: list[Op] = []
        self._outputs: tuple[int, ...] | None = None

    def take(self, line: str) -> None:
        """Parse the next line. Raises InputError if a line of this kind is not allowed at this point."""
        if not line or line.startswith("#"):
            return
        if self._outputs is not None:
            raise InputError("", "follows the line 'return', which must be the last line")
        if self._name is None:
            if not line.startswith("program "):
                raise InputError("", f"must be 'program NAME', got {line[:40]!r}")
            self._name = line.removeprefix("program ").strip()
        elif line == "return" or line.startswith("return "):
            self._outputs = self._values(line.removeprefix("return"))
        elif " = " in line or line.startswith("= "):
            self._ops.append(self._op(line))
        else:
            if self._ops:
                raise InputError("", "an input must come before the first operation")
            self._inputs += self._made(line)

    def program(self) -> Program:
        if self._name is None or self._outputs is None:
            raise InputError("end", f"the line {'program NAME' if self._name is None else 'return …'!r} is missing")
        names = {number: name for name, number in self._numbers.items() if name != str(number)}
        return Program(self._name, tuple(self._types), tuple(self._inputs), tuple(self._ops), self._outputs, names)

    def _op(self, line: str) -> Op:
        found = _OP.fullmatch(line)
        if not found:
            raise InputError("", f"must be '%RESULT: TYPE = OPERATOR(%INPUT, …)', got {line[:60]!r}")
        taken = self._values(found["taken"])
        made = self._made(found["made"] or "")
        return Op(found["kind"], taken, made, _attributes(found["attributes"]), _tag(found["tag"]))

    def _made(self, text: str) -> tuple[int, ...]:
        made, at = [], 0
        while at < len(text):
            found = _TYPED.match(text, at)
            if not found:
                raise InputError("", f"must name values as '%NAME: fp32[4, 8]@1', got {text[at : at + 40]!r}")
            name, dtype, shape, device = found.groups()
            if name in self._numbers:
                raise InputError("", f"defines %{name} a second time")
            self._numbers[name] = len(self._types)
            made.append(len(self._types))
            sizes = tuple(int(size) for size in shape.split(",") if size.strip())
            self._types.append(interned(TensorType(dtype, sizes, int(device))))
            at = found.end() + (2 if text[found.end() : found.end() + 2] == ", " else 0)
            if at == found.end() < len(text):
                raise InputError("", f"must separate values by ', ', got {text[at : at + 20]!r}")
        return tuple(made)

    def _values(self, text: str) -> tuple[int, ...]:
        found = []
        for word in filter(None, (each.strip() for each in text.split(","))):
            name = word.removeprefix("%")
            if not word.startswith("%") or name not in self._numbers:
                raise InputError("", f"uses the undefined value {word}")
            found.append(self._numbers[name])
        return tuple(found)


def _attributes(text: str | None) -> Attributes:
    found: dict[str, AttributeValue] = {}
    for each in filter(None, (part.strip() for part in (text or "").split(","))):
        name, equals, value = each.partition("=")
        if not equals or not name.isidentifier() or name in found:
            raise InputError("", f"must write attributes as {{name=value, …}}, each name once, got {each!r}")
        found[name] = _attribute(value)
    return tuple(sorted(found.items()))


def _attribute(text: str) -> AttributeValue:
    if re.fullmatch(r"\((-?\d+( -?\d+)*)?\)", text):
        return tuple(int(each) for each in text[1:-1].split())
    if re.fullmatch(r"'[^'\\]*'", text):
        return text[1:-1]
    for wanted in (int, float):
        try:
            return wanted(text)
        except ValueError:
            continue
    raise InputError("", f"an attribute must be a number, a quoted text or a list like (1 2), got {text!r}")


def _tag(text: str | None) -> Tag:
    if not text:
        return UNTAGGED
    found = _TAG.fullmatch(text.strip())
    if not found:
        raise InputError("", f"the text after ';' must look like 'stage 0 micro-batch 1 forward', got {text!r}")
    stage, micro_batch, phase, name = found.groups()
    return Tag(int(stage) if stage else None, int(micro_batch) if micro_batch else None, phase, unquote(name or ""))

"""Sentences of documents are short, on every page and in every document at the root."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import pytest

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted(path for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")] if path.name != "CHANGELOG.md")
"""Documents to check. The changelog is a list of past changes, and is not checked."""
MAX_SENTENCE_WORDS = 35
MAX_MEDIAN_WORDS = 16
MIN_SENTENCE_WORDS = 3
"""Texts with fewer words are labels, and are not counted."""

BLOCKS = re.compile(r"^(```|~~~).*?^\1|^---\n.*?^---\n|<!--.*?-->", re.DOTALL | re.MULTILINE)
NO_PROSE = re.compile(r"^\s*(#|:::|!\[|\|[\s:|-]+\|$|<)|^ {4,}\S.*:\s*$")
CODE = re.compile(r"`[^`]+`")
LINK = re.compile(r"!?\[([^]]*)\]\([^)]*\)")
END = re.compile(r"(?<=[.!?])[)\"*_]*\s+(?=[\"*_(\[`]*[A-Z0-9`])")


def paragraphs(text: str, *, cells: bool) -> Iterator[str]:
    """Yield paragraphs, list items and, with `cells`, table cells, each as one line.

    Skip code, headings and pictures.
    """
    lines: list[str] = []
    for line in [*BLOCKS.sub("", text).splitlines(), ""]:
        item = re.match(r"\s*([-*+]|\d+\.)\s+(.*)", line)
        row = line.strip().startswith("|")
        if not line.strip() or item or row or NO_PROSE.match(line):
            yield " ".join(lines)
            lines = [item[2]] if item else []
            if row and cells and not NO_PROSE.match(line):
                yield from line.strip().strip("|").split(" | ")
        else:
            lines.append(line.strip())


def sentences(text: str, *, cells: bool = True) -> list[str]:
    """Return the sentences of a document. Inline code counts as one word, and a link as its text."""
    found = []
    for paragraph in paragraphs(text, cells=cells):
        plain = LINK.sub(r"\1", CODE.sub("`code`", paragraph))
        found += [each for each in END.split(plain) if len(each.split()) >= MIN_SENTENCE_WORDS]
    return found


def words(sentence: str) -> int:
    """Count the words of a sentence, without signs between numbers."""
    return sum(any(sign.isalnum() for sign in word) for word in sentence.split())


def lengths(path: Path, *, cells: bool) -> list[int]:
    """Return the number of words of each sentence of a document."""
    return [words(each) for each in sentences(path.read_text(encoding="utf-8"), cells=cells)]


def test_sentences_are_told_apart() -> None:
    text = "# A title\n\nOne idea is here. Another one `is; here` too!\n\n- An item of it.\n\n"
    table = "| a | this is a cell |\n|---|---|\n"
    code = "```sh\nno sentence at all.\n```\n"
    assert [words(each) for each in sentences(text + table + code)] == [4, 4, 4, 4]
    assert [words(each) for each in sentences(text + table + code, cells=False)] == [4, 4, 4]


def test_there_are_documents() -> None:
    names = {path.name for path in DOCUMENTS}
    assert {"README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "simulation.md"} <= names


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_sentences_of_a_document_are_short(path: Path) -> None:
    long = [each for each in sentences(path.read_text(encoding="utf-8")) if words(each) > MAX_SENTENCE_WORDS]
    assert long == []
    assert median([0, *lengths(path, cells=False)]) <= MAX_MEDIAN_WORDS


def test_half_of_all_sentences_are_short() -> None:
    """Table cells do not count, because they are rarely sentences."""
    assert median(each for path in DOCUMENTS for each in lengths(path, cells=False)) <= MAX_MEDIAN_WORDS

"""XMLBIF 0.3, the interchange format for Bayesian networks in XML, as pyAgrum, pgmpy, JavaBayes and Weka write it.

Read with the standard library's expat. A document type with declarations of elements and attributes is accepted and
ignored; declarations of entities, references to them, and anything that names another file are refused. In ``TABLE``
the variable of ``FOR`` varies fastest, then the last ``GIVEN``; the first ``GIVEN`` varies slowest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn
from xml.parsers import expat

import numpy as np

from margmap.circuit import FloatArray, Variable
from margmap.errors import FormatError, StructureError
from margmap.foundation.numerals import number_of, real_of
from margmap.io.reading import shorten
from margmap.network.network import MAX_SCOPE, MAX_TABLE, FactorError, Network, table_size

#: What the attributes that a document type gives by default may come to, in characters: they go to every element.
MAX_DEFAULTS = 1000

_ENCODINGS = ("utf-8", "utf8", "us-ascii", "ascii")
#: The elements whose text is read, by the element that they are in.
_TEXTS = {
    "VARIABLE": ("NAME", "OUTCOME", "VALUE"),
    "DEFINITION": ("FOR", "GIVEN", "TABLE"),
}


class _Block(NamedTuple):
    """A VARIABLE or a DEFINITION: its line, its TYPE, and its texts in the order of the file."""

    line: int
    kind: str
    texts: list[tuple[str, str, int]]

    def of(self, *names: str) -> list[str]:
        """The texts of some elements."""
        return [text for name, text, _ in self.texts if name in names]


def read(lines: Sequence[str], path: Path) -> Network:
    """The network that an XMLBIF file describes."""
    document = _Document(path)
    document.parse("\n".join(lines))
    if not document.blocks["VARIABLE"]:
        raise FormatError("there is no variable in this file", path=path)
    variables: list[Variable] = []
    column: dict[str, int] = {}
    for block in document.blocks["VARIABLE"]:
        variable = _variable(block, path)
        name = str(variable.name)
        if name in column:
            raise FormatError(f"variable {name!r} is defined a second time", path=path, line=block.line)
        column[name] = len(variables)
        variables.append(variable)
    definitions = document.blocks["DEFINITION"]
    factors = [_factor(block, variables, column, path) for block in definitions]
    try:
        return Network(variables, factors)
    except FactorError as error:
        raise FormatError(str(error), path=path, line=definitions[error.factor].line) from error
    except StructureError as error:
        raise FormatError(str(error), path=path) from error


class _Document:
    """What expat finds, gathered: blocks with the texts inside them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.blocks: dict[str, list[_Block]] = {"VARIABLE": [], "DEFINITION": []}
        self.open: list[str] = []  # the names of the elements around, in capitals
        self.block: _Block | None = None
        self.text: list[str] | None = None
        self.begun = 0
        self.networks = 0
        self.defaults = 0
        self.parser = expat.ParserCreate(encoding="utf-8")
        self.parser.buffer_text = True
        self.parser.XmlDeclHandler = self.declared
        self.parser.StartDoctypeDeclHandler = self.document_type
        self.parser.EndDoctypeDeclHandler = self.document_type_ends
        self.parser.EntityDeclHandler = self.refused("declares an entity")
        self.parser.UnparsedEntityDeclHandler = self.refused("declares an entity")
        self.parser.NotationDeclHandler = self.refused("declares a notation")
        self.parser.ExternalEntityRefHandler = self.refused("refers to an entity")
        self.parser.SkippedEntityHandler = self.refused("refers to an entity")
        self.parser.AttlistDeclHandler = self.attribute
        self.parser.StartElementHandler = self.begin
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters

    def parse(self, text: str) -> None:
        try:
            self.parser.Parse(text.encode("utf-8", "surrogatepass"), True)
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            raise FormatError(f"not XML that can be read: {what}", path=self.path, line=error.lineno) from None

    def declared(self, version: str, encoding: str | None, standalone: int) -> None:
        if encoding is not None and encoding.lower() not in _ENCODINGS:
            self.fail(f"the encoding {shorten(encoding)!r} is not read: write the file in UTF-8, and say so in it")

    def document_type(self, name: str, system: str | None, public: str | None, internal: int) -> None:
        if system is not None or public is not None:
            self.fail("the document type refers to another file, which is never read: remove the reference")
        self.parser.DefaultHandler = self.in_document_type

    def in_document_type(self, text: str) -> None:
        if text.startswith("%") and text.endswith(";"):
            self.fail("the file refers to an entity, which is never read: remove it")

    def document_type_ends(self) -> None:
        self.parser.DefaultHandler = None

    def attribute(self, element: str, name: str, kind: str, default: str | None, required: int) -> None:
        self.defaults += 0 if default is None else len(name) + len(default)
        if self.defaults > MAX_DEFAULTS:
            self.fail("the document type gives too many attributes by default")

    def refused(self, what: str) -> Callable[..., NoReturn]:
        return lambda *_: self.fail(f"the file {what}, which is never read: remove it")

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        word = name.upper()
        if not self.open and word != "BIF":
            self.fail(f"this is no XMLBIF: expected the element BIF, found {shorten(name)!r}")
        self.open.append(word)
        if word == "NETWORK":
            self.networks += 1
            if self.networks > 1:
                self.fail("there is a second network in this file")
        if self.text is not None:
            self.fail(f"{self.open[-2]} holds text, not the element {shorten(name)!r}")
        if word in _TEXTS:
            if self.block is not None:
                self.fail(f"{word} inside another block")
            self.block = _Block(self.line, attributes.get("TYPE", "nature").lower(), [])
            self.blocks[word].append(self.block)
        elif len(self.open) > 1 and word in _TEXTS.get(self.open[-2], ()):
            self.text, self.begun = [], self.line

    def end(self, name: str) -> None:
        word = self.open.pop()
        if self.text is not None:
            assert self.block is not None
            self.block.texts.append((word, "".join(self.text).strip(), self.begun))
            self.text = None
        elif word in _TEXTS:
            self.block = None

    def characters(self, text: str) -> None:
        if self.text is not None:
            self.text.append(text)

    @property
    def line(self) -> int:
        return int(self.parser.CurrentLineNumber)

    def fail(self, message: str) -> NoReturn:
        raise FormatError(message, path=self.path, line=self.line)


def _variable(block: _Block, path: Path) -> Variable:
    names = block.of("NAME")
    if len(names) != 1 or not names[0]:
        raise FormatError(f"a variable has {len(names)} names, and needs one", path=path, line=block.line)
    if block.kind != "nature":
        message = f"variable {names[0]!r} is of type {block.kind!r}: only chance variables ('nature') can be read"
        raise FormatError(message, path=path, line=block.line)
    states = block.of("OUTCOME", "VALUE")
    if not states:
        raise FormatError(f"variable {names[0]!r} has no outcomes", path=path, line=block.line)
    try:
        return Variable(names[0], len(states), tuple(states))
    except StructureError as error:
        raise FormatError(str(error), path=path, line=block.line) from error


def _factor(
    block: _Block, variables: Sequence[Variable], column: dict[str, int], path: Path
) -> tuple[tuple[int, ...], FloatArray]:
    def fail(message: str, line: int = block.line) -> NoReturn:
        raise FormatError(message, path=path, line=line)

    child, parents = block.of("FOR"), block.of("GIVEN")
    if len(child) != 1:
        fail(f"a definition is for {len(child)} variables: a Bayesian network has one table a variable")
    unknown = next((name for name in (*parents, *child) if name not in column), None)
    if unknown is not None:
        fail(f"variable {shorten(unknown)!r} is not defined")
    scope = tuple(column[name] for name in (*parents, *child))
    size = table_size(variables[v].cardinality for v in scope)
    if size > MAX_TABLE or len(scope) > MAX_SCOPE:
        limits = f"{MAX_SCOPE} variables and {MAX_TABLE} numbers are the most"
        fail(f"the table of {child[0]!r} is too large with {len(parents)} parents, {limits}")
    tables = [(text, line) for name, text, line in block.texts if name == "TABLE"]
    if len(tables) != 1:
        fail(f"the definition of {child[0]!r} has {len(tables)} tables, and needs one")
    text, line = tables[0]
    words = text.split()
    if len(words) != size:
        fail(f"the table of {child[0]!r} has {len(words)} numbers, but needs {size}", line)
    try:
        return scope, np.fromiter(map(real_of, words), np.float64, size)
    except ValueError:
        wrong = next(word for word in words if number_of(word) is None)
        fail(f"the table of {child[0]!r} has something that is no number: {shorten(wrong)!r}", line)

"""Every error a user can cause, under one root."""

from __future__ import annotations


class MargmapError(Exception):
    """The root of all errors raised on purpose by margmap."""


class FormatError(MargmapError):
    """A file cannot be read or written; the message names the file and, where there is one, the line."""

    def __init__(self, message: str, *, path: object = None, line: int | None = None) -> None:
        self.path = path
        self.line = line
        where = "" if path is None else f"{path}: " if line is None else f"{path}, line {line}: "
        super().__init__(where + message)


class StructureError(MargmapError):
    """A circuit lacks a property that the request needs; the message names the node and the variable."""


class ModelError(MargmapError):
    """An object is no model, or not of the kind that is needed; the message names its class and says what to do."""


class QueryError(MargmapError):
    """A query, its evidence or its rows do not fit the circuit."""


class ImpossibleEvidenceError(QueryError):
    """The evidence has probability 0, so nothing can be conditioned on it."""


class DataError(QueryError, ValueError):
    """Data to learn from, or an option of a learner, cannot be used; the message names the row and the column."""


class LimitError(MargmapError):
    """The request is larger than this method or a limit allows."""


class MissingExtraError(MargmapError):
    """An optional dependency is not installed; the message says which extra brings it."""


class UnnormalisedWarning(UserWarning):
    """A file calls itself a Bayesian network, but its tables are not probabilities; it is read as a Markov network."""


class NoSplitWarning(UserWarning):
    """A learner was stopped before it had split anything, so that its circuit is what it began with."""


class DroppedColumnWarning(UserWarning):
    """A column of a table is no use to a model, such as an identifier or a date, and was left out."""


class LostNamesWarning(UserWarning):
    """A file format cannot hold the names and the encoding of a table, so that the file has numbers in their place."""

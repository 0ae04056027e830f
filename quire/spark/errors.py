"""Errors between Spark and topics. Each class says whether it is permanent or passing, and how to handle it.

All of them pickle (Spark carries them from a worker to the driver), so each is made from its message alone, or says how
it is made again.
"""

from __future__ import annotations

from typing import ClassVar


class SparkSourceError(Exception):
    """Root: catching it catches every failure of the package."""

    passing: ClassVar[bool] = False
    """Mark of errors after which the same call may succeed: those of a class whose docstring says "Passing"."""


class OptionError(SparkSourceError, ValueError):
    """An option is missing, unknown, malformed, or contradicts another. Permanent: change the option as the text says.

    `option` is its name as in the documentation, `value` the given value (None: not given), `remedy` what to do."""

    def __init__(self, option: str, value: str | None, remedy: str) -> None:
        given = f"option {option!r}" if value is None else f"option {option!r} is {value!r}"
        super().__init__(f"{given}: {remedy}")
        self.option = option
        self.value = value
        self.remedy = remedy

    def __reduce__(self) -> tuple[type[OptionError], tuple[str, str | None, str]]:
        return type(self), (self.option, self.value, self.remedy)


class OffsetError(SparkSourceError, ValueError):
    """A stored offset has another format, or a newer version: the checkpoint of another source, or a newer one.
    Permanent."""


class DataLossError(SparkSourceError):
    """Entries that were to be read are deleted or invalid. Permanent for the query: `failOnDataLoss=false` skips them.

    The text names the topic, the range and that option."""


class SourceUnavailableError(SparkSourceError):
    """The brokers were unavailable for the operation timeout. Passing: start the query again; it continues at its
    checkpoint."""

    passing = True


class SinkError(SparkSourceError):
    """Rows could not be written. The text says whether a retry can help; Spark retries the task by its own rules."""


class SchemaError(SparkSourceError):
    """A topic has no schema, or one whose values have no column in Spark. Permanent: read with `decode=none`, or change
    the topic's schema."""


class UndecodableError(SparkSourceError):
    """A message is no value of its schema, and `onDecodeError` is `fail`. Permanent for the query: choose `null` or
    `deadLetter`."""


class MissingDependencyError(SparkSourceError, ImportError):
    """A package that is needed is not installed in this process, or is too old. Final: install `quire-broker[spark]`
    there."""


class StatsError(SparkSourceError):
    """The broker's data about a log are inconsistent, because they were read while a ledger rolled. Passing: retry."""

    passing = True

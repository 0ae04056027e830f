"""Parameters of requests, in the path or the query: each parses its text, and is described with an API.

    FORCE = Flag("force", "Delete it while it is used.")
    FORCE.of(request.query_params)

A handler names its parameters as constants of its module, so that a description is made from its code
(`broker.admin.openapi.reach`). Bounds are inclusive.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from starlette.datastructures import QueryParams

Json = dict[str, Any]

_DIGITS = re.compile("-?[0-9]{1,19}")
_SHOWN_MAX = 100


class ParameterError(ValueError):
    """A parameter cannot be read, or is out of its bounds. Permanent: correct the request. Answered with 400."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """Parameter of a query with any text."""

    place: ClassVar[str] = "query"
    name: str
    about: str
    """Sentence for the description."""

    def schema(self) -> Json:
        """Return the JSON Schema of its text."""
        return {"type": "string"}

    def text(self, query: Mapping[str, str]) -> str | None:
        """Return the text as it is; None: it is not given."""
        return query.get(self.name)


@dataclass(frozen=True, slots=True)
class Flag(Parameter):
    """`true` or `false`, in any case."""

    default: bool = False

    def schema(self) -> Json:
        return {"type": "boolean", "default": self.default}

    def of(self, query: Mapping[str, str]) -> bool:
        """Return the value, the default if absent. Raises ParameterError for anything else: a request that deletes must
        not guess."""
        found = query.get(self.name)
        if found is None:
            return self.default
        if found.lower() not in ("true", "false"):
            raise ParameterError(f"{self.name} must be true or false, not {found[:_SHOWN_MAX]!a}")
        return found.lower() == "true"


@dataclass(frozen=True, slots=True)
class OneOf(Parameter):
    """One of some texts. An empty one counts as absent."""

    choices: tuple[str, ...]
    default: str

    def schema(self) -> Json:
        return {"type": "string", "enum": list(self.choices), "default": self.default}

    def of(self, query: Mapping[str, str], fails: type[Exception] = ParameterError) -> str:
        """Return the value, the default if absent. Raises `fails` for anything else."""
        found = query.get(self.name) or self.default
        if found not in self.choices:
            raise fails(f"{self.name} must be one of {', '.join(self.choices)}, not {found[:_SHOWN_MAX]!a}")
        return found


@dataclass(frozen=True, slots=True)
class WholeNumber(Parameter):
    """Number between two bounds."""

    minimum: int
    maximum: int
    needed: bool = field(default=False, kw_only=True)

    def schema(self) -> Json:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}

    def of(self, query: Mapping[str, str]) -> int | None:
        """Return the value; None if absent and not needed. Raises ParameterError."""
        found = query.get(self.name)
        return None if found is None and not self.needed else self.parse(found or "")

    def parse(self, text: str) -> int:
        """Return the number that a text says. Raises ParameterError."""
        if not _DIGITS.fullmatch(text) or not self.minimum <= int(text) <= self.maximum:
            raise ParameterError(
                f"{self.name} must be a number from {self.minimum} to {self.maximum}, not {text[:_SHOWN_MAX]!a}"
            )
        return int(text)


@dataclass(frozen=True, slots=True)
class Texts(Parameter):
    """Texts; a query may have several of the name."""

    def schema(self) -> Json:
        return {"type": "array", "items": {"type": "string"}}

    def all(self, query: QueryParams) -> list[str]:
        """Return all of them."""
        return query.getlist(self.name)


@dataclass(frozen=True, slots=True)
class PathNumber(WholeNumber):
    """Number that is a part of a path."""

    place: ClassVar[str] = "path"

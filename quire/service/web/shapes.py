"""Shapes of JSON values (pure): each checks a value, and is a JSON Schema for the description of an API.

    Record({"limit": Whole(0, 10), "policy": OneText(("a", "b"))}, needed=("limit",))

A check of a value names what is wrong with it, and the rule; its caller chooses the error. A field that is null counts
as absent unless it is needed, as the originals' mappers read it. Fields without a shape are not looked at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

Json = dict[str, Any]
Fails = type[Exception]
"""Class of the error that a check raises, made with a text."""

SHOWN_MAX = 40
"""Characters of a wrong value in the text of an error."""


class Shape(Protocol):
    """Set of JSON values."""

    def schema(self) -> Json:
        """Return the JSON Schema of the set."""

    def check(self, value: object, what: str, fails: Fails) -> Any:
        """Return the value if it is in the set; raise `fails` otherwise. `what` names the value in its text."""


def shown(value: object) -> str:
    """Return the beginning of a value, for the text of an error."""
    return ascii(str(value)[:SHOWN_MAX])


@dataclass(frozen=True, slots=True)
class Anything:
    """Every JSON value."""

    def schema(self) -> Json:
        return {}

    def check(self, value: object, what: str, fails: Fails) -> Any:
        return value


@dataclass(frozen=True, slots=True)
class Whole:
    """Whole numbers between two bounds, inclusive."""

    minimum: int
    maximum: int

    def schema(self) -> Json:
        return {"type": "integer", "minimum": self.minimum, "maximum": self.maximum}

    def check(self, value: object, what: str, fails: Fails) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not self.minimum <= value <= self.maximum:
            raise fails(f"{what} must be a whole number from {self.minimum} to {self.maximum}, not {shown(value)}")
        return value


@dataclass(frozen=True, slots=True)
class Number:
    """Numbers, with a fraction or without."""

    def schema(self) -> Json:
        return {"type": "number"}

    def check(self, value: object, what: str, fails: Fails) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise fails(f"{what} must be a number, not {shown(value)}")
        try:
            return float(value)
        except OverflowError:
            raise fails(f"{what} is too large: {shown(value)}") from None


@dataclass(frozen=True, slots=True)
class Truth:
    """true and false."""

    def schema(self) -> Json:
        return {"type": "boolean"}

    def check(self, value: object, what: str, fails: Fails) -> bool:
        if not isinstance(value, bool):
            raise fails(f"{what} must be true or false, not {shown(value)}")
        return value


@dataclass(frozen=True, slots=True)
class Text:
    """Strings of at least `minimum` characters."""

    minimum: int = 0

    def schema(self) -> Json:
        return {"type": "string", **({"minLength": self.minimum} if self.minimum else {})}

    def check(self, value: object, what: str, fails: Fails) -> str:
        if not isinstance(value, str) or len(value) < self.minimum:
            raise fails(f"{what} must be a {'text' if self.minimum else 'string'}, not {shown(value)}")
        return value


@dataclass(frozen=True, slots=True)
class OneText:
    """Some strings."""

    choices: tuple[str, ...]

    def schema(self) -> Json:
        return {"type": "string", "enum": list(self.choices)}

    def check(self, value: object, what: str, fails: Fails) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise fails(f"{what} must be one of {', '.join(self.choices)}, not {shown(value)}")
        return value


@dataclass(frozen=True, slots=True)
class Listing:
    """Arrays of at least `minimum` values of one shape."""

    of: Shape
    minimum: int = 0

    def schema(self) -> Json:
        return {"type": "array", "items": self.of.schema(), **({"minItems": self.minimum} if self.minimum else {})}

    def check(self, value: object, what: str, fails: Fails) -> list[Any]:
        if not isinstance(value, list) or len(value) < self.minimum:
            raise fails(f"{what} must be a list{' that is not empty' if self.minimum else ''}, not {shown(value)}")
        return [self.of.check(each, f"each of {what}", fails) for each in value]


@dataclass(frozen=True, slots=True)
class ByName:
    """Objects with any names, whose values have one shape."""

    of: Shape

    def schema(self) -> Json:
        return {"type": "object", "additionalProperties": self.of.schema()}

    def check(self, value: object, what: str, fails: Fails) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise fails(f"{what} must be an object, not {shown(value)}")
        return {name: self.of.check(each, f"{name[:SHOWN_MAX]!a} of {what}", fails) for name, each in value.items()}


@dataclass(frozen=True, slots=True)
class Record:
    """Objects with known fields. The check returns the known fields that are there and not null."""

    fields: Mapping[str, Shape]
    needed: tuple[str, ...] = ()

    def schema(self) -> Json:
        found: Json = {"type": "object", "properties": {name: self._of(name) for name in self.fields}}
        return {**found, "required": list(self.needed)} if self.needed else found

    def _of(self, name: str) -> Json:
        schema = self.fields[name].schema()
        return schema if name in self.needed or not schema else {"anyOf": [schema, {"type": "null"}]}

    def check(self, value: object, what: str, fails: Fails) -> Json:
        if not isinstance(value, Mapping):
            raise fails(f"{what} must be an object with {', '.join(self.fields)}, not {shown(value)}")
        return {
            name: shape.check(value.get(name), name, fails)
            for name, shape in self.fields.items()
            if name in self.needed or value.get(name) is not None
        }


@dataclass(frozen=True, slots=True)
class Either:
    """Values of any of some shapes. The check goes by the first that fits."""

    shapes: tuple[Shape, ...]

    def schema(self) -> Json:
        return {"anyOf": [each.schema() for each in self.shapes]}

    def check(self, value: object, what: str, fails: Fails) -> Any:
        for shape in self.shapes[:-1]:
            try:
                return shape.check(value, what, _NotThisError)
            except _NotThisError:
                continue
        return self.shapes[-1].check(value, what, fails)


@dataclass(frozen=True, slots=True)
class Body:
    """Shape of a whole body, where a handler also uses shapes of parts of it."""

    shape: Shape

    def check(self, value: object, what: str, fails: Fails) -> Any:
        return self.shape.check(value, what, fails)


class _NotThisError(Exception):
    """The value has another of the shapes, or none."""

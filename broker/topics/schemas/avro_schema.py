"""Avro schemas: the types that a definition in JSON describes (pure).

What is accepted is what Apache Avro 1.12 accepts with Pulsar's rule for names, which allows `$`. Defaults are kept and
not checked. The rules are those of the Avro specification, "Schema Declaration"; where it leaves something open, those
of Avro's Schema.Parser, with which tests/unit/broker/topics/schemas/testdata was compared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

PRIMITIVES: Final = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
NAMED: Final = frozenset(("record", "enum", "fixed"))
DEPTH_MAX: Final = 200
"""Types within types."""
TYPES_MAX: Final = 20_000
"""Types of one definition, each use of a named one too."""

_RESERVED: Final = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_FIELD_RESERVED: Final = frozenset(("default", "doc", "name", "order", "type", "aliases"))


class AvroSchemaError(ValueError):
    """Not an Avro schema. The message gives the reason."""


class _Missing:
    """Type of NO_DEFAULT."""


NO_DEFAULT: Final = _Missing()


@dataclass(slots=True, eq=False)
class AvroField:
    """A field of a record."""

    name: str
    type: AvroType
    default: Any = NO_DEFAULT
    aliases: tuple[str, ...] = ()
    order: str = "ascending"
    properties: str = ""
    """Other things that are said of it, in one form."""


@dataclass(slots=True, eq=False)
class AvroType:
    """A type. Which of its parts count depends on the kind."""

    kind: str
    """One of PRIMITIVES and NAMED, or array, map, union; empty while a name is used before it is declared."""
    name: str = ""
    """Full name of a record, enum or fixed."""
    aliases: tuple[str, ...] = ()
    """Full names."""
    fields: tuple[AvroField, ...] = ()
    symbols: tuple[str, ...] = ()
    size: int = 0
    parts: tuple[AvroType, ...] = ()
    """Items of an array, values of a map, branches of a union."""
    properties: str = ""
    """Other things that are said of it, in one form: logical type, class names and such."""
    by_name: dict[str, AvroField] = field(default_factory=dict)
    """The fields of a record."""

    @property
    def short_name(self) -> str:
        """Name without the namespace."""
        return self.name.rpartition(".")[2]


def parse(text: bytes) -> AvroType:
    """Return the type that a definition describes. Raises AvroSchemaError."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise AvroSchemaError(f"not JSON: {error}") from error
    return _Parser().parsed(value)


class _Parser:
    """Reader of one definition."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}
        self._undeclared: dict[str, AvroType] = {}
        """Types that are used before they are declared."""
        self._count = 0

    def parsed(self, value: object) -> AvroType:
        found = self._type(value, "", 0)
        for name in self._undeclared:
            raise AvroSchemaError(f"no type is named {name!a}")
        return found

    def _type(self, value: object, space: str, depth: int) -> AvroType:
        """Return the type of a declaration or a name, in a namespace."""
        self._count += 1
        if depth > DEPTH_MAX:
            raise AvroSchemaError(f"types are nested more than {DEPTH_MAX} deep")
        if self._count > TYPES_MAX:
            raise AvroSchemaError(f"more than {TYPES_MAX} types")
        match value:
            case str():
                return AvroType(value) if value in PRIMITIVES else self._reference(value, space)
            case dict():
                return self._declared(value, space, depth)
            case list():
                return self._union([self._type(each, space, depth + 1) for each in value])
            case _:
                raise AvroSchemaError(f"{_shown(value)} is no type")

    def _reference(self, name: str, space: str) -> AvroType:
        full = _full_name(name, space)
        found = self._named.get(full) or self._named.get(name) or self._undeclared.get(full)
        if found is None:
            found = self._undeclared[full] = AvroType("", full)
        return found

    @staticmethod
    def _union(branches: list[AvroType]) -> AvroType:
        seen: set[str] = set()
        for each in branches:
            if each.kind == "union":
                raise AvroSchemaError("a union directly within a union")
            key = each.name or each.kind
            if key in seen:
                raise AvroSchemaError(f"{key!a} is in a union twice")
            seen.add(key)
        return AvroType("union", parts=tuple(branches))

    def _declared(self, value: Mapping[str, Any], space: str, depth: int) -> AvroType:
        kind = value.get("type")
        if not isinstance(kind, str):
            raise AvroSchemaError(f"no type in {_shown(value)}")
        if kind == "error":
            kind = "record"
        if kind in PRIMITIVES:
            return AvroType(kind, properties=_properties(value, _RESERVED))
        if kind in NAMED:
            return self._named_type(kind, value, space, depth)
        if kind not in ("array", "map"):
            return self._reference(kind, space)
        key = "items" if kind == "array" else "values"
        if key not in value:
            raise AvroSchemaError(f"{kind} without {key}")
        part = self._type(value[key], space, depth + 1)
        return AvroType(kind, parts=(part,), properties=_properties(value, _RESERVED))

    def _named_type(self, kind: str, value: Mapping[str, Any], space: str, depth: int) -> AvroType:
        name = value.get("name")
        if not isinstance(name, str):
            raise AvroSchemaError(f"no name in {_shown(value)}")
        said = value.get("namespace")
        full = _full_name(name, said if isinstance(said, str) else space)
        for part in full.split("."):
            _check_name(part)
        if full in PRIMITIVES:
            raise AvroSchemaError(f"a {kind} cannot be named {full!a}")
        if full in self._named:
            raise AvroSchemaError(f"{full!a} is declared twice")
        made = self._undeclared.pop(full, None) or AvroType("", full)
        made.kind = kind
        self._named[full] = made
        inner = full.rpartition(".")[0]
        made.aliases = tuple(_full_name(each, inner) for each in _texts(value, "aliases"))
        made.properties = _properties(value, _RESERVED | {"default"} if kind == "enum" else _RESERVED)
        if kind == "record":
            self._add_fields(made, value, inner, depth)
        elif kind == "enum":
            self._add_symbols(made, value)
        else:
            size = value.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or size < 0:
                raise AvroSchemaError(f"invalid or no size of fixed {full!a}")
            made.size = size
        return made

    def _add_fields(self, made: AvroType, value: Mapping[str, Any], space: str, depth: int) -> None:
        declared = value.get("fields")
        if not isinstance(declared, list):
            raise AvroSchemaError(f"record {made.name!a} has no fields")
        fields: list[AvroField] = []
        for each in declared:
            if not isinstance(each, dict) or not isinstance(each.get("name"), str) or "type" not in each:
                raise AvroSchemaError(f"record {made.name!a} has a field without a name or a type")
            name = each["name"]
            _check_name(name)
            if name in made.by_name:
                raise AvroSchemaError(f"record {made.name!a} has two fields {name!a}")
            order = each.get("order")
            kind = self._type(each["type"], space, depth + 1)
            found = AvroField(
                name,
                kind,
                _default_of(kind, each),
                _texts(each, "aliases"),
                order.lower() if isinstance(order, str) else "ascending",
                _properties(each, _FIELD_RESERVED),
            )
            made.by_name[name] = found
            fields.append(found)
        made.fields = tuple(fields)

    @staticmethod
    def _add_symbols(made: AvroType, value: Mapping[str, Any]) -> None:
        symbols = value.get("symbols")
        if not isinstance(symbols, list):
            raise AvroSchemaError(f"enum {made.name!a} has no symbols")
        for each in symbols:
            if not isinstance(each, str):
                raise AvroSchemaError(f"enum {made.name!a} has the symbol {_shown(each)}")
            _check_name(each)
        if len(set(symbols)) < len(symbols):
            raise AvroSchemaError(f"enum {made.name!a} has a symbol twice")
        default = value.get("default")
        if isinstance(default, str) and default not in symbols:
            raise AvroSchemaError(f"the default of enum {made.name!a} is none of its symbols")
        made.symbols = tuple(symbols)


def same(one: AvroType, other: AvroType) -> bool:
    """Return whether two schemas say the same. Documentation, aliases and an enum's default do not count.

    Source: Avro's Schema.equals."""
    seen: set[tuple[int, int]] = set()
    todo = [(one, other)]
    while todo:
        left, right = todo.pop()
        if (id(left), id(right)) in seen:
            continue
        seen.add((id(left), id(right)))
        if (left.kind, left.name, left.size, left.symbols, left.properties) != (
            right.kind,
            right.name,
            right.size,
            right.symbols,
            right.properties,
        ) or len(left.parts) != len(right.parts):
            return False
        if list(map(_said_of_field, left.fields)) != list(map(_said_of_field, right.fields)):
            return False
        todo += zip(left.parts, right.parts, strict=True)
        todo += ((a.type, b.type) for a, b in zip(left.fields, right.fields, strict=True))
    return True


def _said_of_field(each: AvroField) -> tuple[str, str, str, str]:
    default = "" if each.default is NO_DEFAULT else json.dumps(each.default, sort_keys=True)
    return each.name, each.order, each.properties, default


def _default_of(kind: AvroType, value: Mapping[str, Any]) -> Any:
    """Return the default of a field. Of a number that is written as text, the number."""
    default = value.get("default", NO_DEFAULT)
    if kind.kind not in ("float", "double") or not isinstance(default, str):
        return default
    try:
        return float(default)
    except ValueError as error:
        raise AvroSchemaError(f"the default of field {_shown(value.get('name'))} is not a number") from error


def _full_name(name: str, space: str) -> str:
    """Return a name with its namespace. A dot at the beginning means none."""
    return name.lstrip(".") if "." in name or not space else f"{space}.{name}"


def _check_name(name: str) -> None:
    """Source: Pulsar's StructSchemaDataValidator.CompatibleNameValidator."""
    first = name[:1]
    if not (first.isalpha() or first in ("_", "$")) or not first:
        raise AvroSchemaError(f"{name[:100]!a} is not a name: it does not begin with a letter")
    if not all(each.isalpha() or each.isdecimal() or each in "_$" for each in name):
        raise AvroSchemaError(f"{name[:100]!a} is not a name: only letters, digits, _ and $ are allowed")


def _texts(value: Mapping[str, Any], key: str) -> tuple[str, ...]:
    found = value.get(key, ())
    if not isinstance(found, list | tuple) or not all(isinstance(each, str) for each in found):
        raise AvroSchemaError(f"{key} must be a list of names")
    return tuple(found)


def _properties(value: Mapping[str, Any], reserved: frozenset[str]) -> str:
    rest = {key: each for key, each in value.items() if key not in reserved}
    return json.dumps(rest, sort_keys=True) if rest else ""


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _shown(value: object) -> str:
    return str(value)[:100]

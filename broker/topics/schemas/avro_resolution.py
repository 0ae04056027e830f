"""Decision (pure) if messages written with one Avro schema can be read with another.

The rules are the Avro specification's, "Schema Resolution", as the original's brokers apply them: Avro's
SchemaValidator with its Resolver. So what Pulsar accepts is accepted here:

- A record matches a record whatever their names are. Names count in a union, where a branch of the same full name is
  taken first, then one with which the record can be read, by its fields.
- An enum and a fixed match one of the same name; the namespace does not count, except in a union.
- A symbol that the reader's enum lacks is no reason to refuse: a message with it cannot be read, the others can.
- A field that the writer lacks needs a default that is valid for its type.
- Aliases of the reader's types and fields count.

tests/unit/broker/topics/schemas/testdata has verdicts that were compared with Avro 1.12.1's.
"""

from __future__ import annotations

from typing import Any, Final

from broker.topics.schemas.avro_schema import NO_DEFAULT, AvroField, AvroType, same

PAIRS_MAX: Final = 50_000
"""Pairs of types that one comparison looks at. Definitions that are larger, or refer to each other in more ways, are
refused."""
_PROMOTIONS: Final = frozenset(
    (
        ("int", "long"),
        ("int", "float"),
        ("int", "double"),
        ("long", "float"),
        ("long", "double"),
        ("float", "double"),
        ("string", "bytes"),
        ("bytes", "string"),
    )
)
"""Pairs of types: values of the first can be read as the second."""
_NESTED_MAX: Final = 100
"""Records within records that are compared to find the branch of a union."""


class TooManyPairsError(ValueError):
    """The comparison would take too long."""


def why_unreadable(writer: AvroType, reader: AvroType) -> str:
    """Return why messages of `writer` cannot be read with `reader`; "" if they can. Raises TooManyPairsError."""
    return "" if same(writer, reader) else _Comparison(reader).run(writer, reader)


class _Comparison:
    """One comparison."""

    def __init__(self, reader: AvroType) -> None:
        self._seen: set[tuple[int, int]] = set()
        self._looks = 0
        self._nested = 0
        self._differing: dict[tuple[int, int], bool] = {}
        """Results of `_differs`; False while it is being found out."""
        self._aliases = _aliases_of(reader)
        """Full names of types of the reader, by their aliases."""

    def run(self, writer: AvroType, reader: AvroType) -> str:
        todo: list[tuple[AvroType, AvroType, str]] = [(writer, reader, "")]
        while todo:
            written, read, path = todo.pop()
            if (id(written), id(read)) in self._seen:
                continue
            self._seen.add((id(written), id(read)))
            if written.kind == "union":
                todo += ((each, read, path) for each in written.parts)
                continue
            if why := self._mismatch(written, read):
                return f"{path or 'the schema'}: {why}"
            if read.kind == "union":
                todo.append((written, self._branch(written, read) or read, path))
            elif written.kind in ("array", "map"):
                todo.append((written.parts[0], read.parts[0], f"{path}[]"))
            elif written.kind == "record":
                for each in written.fields:
                    found = self._field_of(written, read, each)
                    if found is not None:
                        todo.append((each.type, found.type, f"{path}.{found.name}" if path else found.name))
        return ""

    def _mismatch(self, written: AvroType, read: AvroType) -> str:
        """Return why a type, no union, cannot be read as another, without a look at what is in them."""
        self._looks += 1
        if self._looks > PAIRS_MAX:
            raise TooManyPairsError(f"the schemas cannot be compared: more than {PAIRS_MAX} pairs of types")
        if written.kind == read.kind:
            if written.kind == "fixed" and written.size != read.size:
                return f"fixed {read.name} has {read.size} bytes, and {written.size} are written"
            if written.kind in ("fixed", "enum") and self._name_of(written).rpartition(".")[2] != read.short_name:
                return f"{read.kind} {read.name} is written as {written.name}"
            if written.kind == "record":
                return self._lacking(written, read)
            return ""
        if read.kind == "union":
            if self._branch(written, read) is None:
                return f"{_shown(written)} is none of {', '.join(map(_shown, read.parts)) or 'no types'}"
            return ""
        if (written.kind, read.kind) in _PROMOTIONS:
            return ""
        return f"{_shown(written)} cannot be read as {_shown(read)}"

    def _lacking(self, written: AvroType, read: AvroType) -> str:
        """Return which field of a record has neither a value nor a default."""
        there = {self._renamed(written, read, each) for each in written.fields}
        for each in read.fields:
            if each.name in there:
                continue
            if each.default is NO_DEFAULT:
                return f"field {each.name!a} of {read.name} has no default, and is not written"
            if not _is_valid(each.type, each.default):
                return f"field {each.name!a} of {read.name} has a default of another type, and is not written"
        return ""

    def _branch(self, written: AvroType, union: AvroType) -> AvroType | None:
        """Return the branch of the reader's union with which a type is read."""
        alike: AvroType | None = None
        for branch in union.parts:
            self._looks += 1
            if branch.kind != written.kind:
                continue
            if not branch.name:
                return branch
            if branch.name == self._name_of(written):
                return branch
            if branch.kind == "record" and not self._differs(written, branch):
                has_name = branch.short_name == self._name_of(written).rpartition(".")[2]
                alike = branch if alike is None or has_name else alike
        if alike is not None:
            return alike
        return next((each for each in union.parts if (written.kind, each.kind) in _PROMOTIONS), None)

    def _differs(self, written: AvroType, read: AvroType) -> bool:
        """Return whether two records differ in the type of a field, with a look at records only in unions."""
        key = id(written), id(read)
        known = self._differing.get(key)
        if known is not None:
            return known
        if self._nested >= _NESTED_MAX:
            raise TooManyPairsError(f"the schemas cannot be compared: more than {_NESTED_MAX} records within unions")
        self._differing[key] = False
        self._nested += 1
        try:
            found = self._differing[key] = bool(self._mismatch(written, read)) or any(
                each.type.kind != "union"
                and (one := self._field_of(written, read, each)) is not None
                and bool(self._mismatch(each.type, one.type))
                for each in written.fields
            )
        finally:
            self._nested -= 1
        return found

    # Aliases

    def _name_of(self, written: AvroType) -> str:
        """Return the full name of a written type as the reader calls it."""
        return self._aliases.get(written.name, written.name)

    def _renamed(self, written: AvroType, read: AvroType, each: AvroField) -> str:
        """Return the name of a written field as the reader calls it."""
        if each.name in read.by_name or self._name_of(written) != read.name:
            return each.name
        return next((found.name for found in read.fields if each.name in found.aliases), each.name)

    def _field_of(self, written: AvroType, read: AvroType, each: AvroField) -> AvroField | None:
        return read.by_name.get(self._renamed(written, read, each))


def _aliases_of(reader: AvroType) -> dict[str, str]:
    found: dict[str, str] = {}
    seen: set[int] = set()
    todo = [reader]
    while todo:
        each = todo.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        for alias in each.aliases:
            found.setdefault(alias, each.name)
        todo += each.parts
        todo += (one.type for one in each.fields)
    return found


def _is_valid(kind: AvroType, value: Any) -> bool:
    """Return whether a default can be a value of the type.

    Source: Avro's ResolvingGrammarGenerator.encode."""
    todo: list[tuple[AvroType, Any]] = [(kind, value)]
    for _ in range(PAIRS_MAX):
        if not todo:
            return True
        each, found = todo.pop()
        if each.kind == "union":
            branch = next((one for one in each.parts if _has_form(one, found)), None)
            if branch is None:
                return False
            each = branch
        if not _has_form(each, found):
            return False
        if each.kind == "array":
            todo += ((each.parts[0], one) for one in found)
        elif each.kind == "map":
            todo += ((each.parts[0], one) for one in found.values())
        elif each.kind == "record":
            for one in each.fields:
                inner = found.get(one.name, one.default)
                if inner is NO_DEFAULT:
                    return False
                todo.append((one.type, inner))
    return False  # a default that contains itself


def _has_form(kind: AvroType, value: Any) -> bool:
    """Return whether a value in JSON has the form of a type, without a look at what is in it."""
    match kind.kind:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int" | "long" | "float" | "double":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "string" | "bytes" | "fixed":
            return isinstance(value, str)
        case "enum":
            return value in kind.symbols
        case "array":
            return isinstance(value, list)
        case _:
            return isinstance(value, dict)


def _shown(each: AvroType) -> str:
    return each.name or each.kind

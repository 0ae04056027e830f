"""Configuration: keys with the names Pulsar's and BookKeeper's operators know, each declared once, in the room that
obeys it.

A room declares its keys as fields of a frozen dataclass, made with `conf_key`: name, type, default, bounds, unit and a
line of help. What a process may be told is a list of such classes (quire.service.process_conf); its file in conf/, the
table in docs/configuration.md and `quire config explain` are made from them. How a file is read says
quire.service.properties, and what becomes of a key that only the originals have says quire.service.original_conf. An
empty value means the default, except for text.

Values: int and float in decimal, bool as true or false, str as it stands, tuple[str, ...] with commas, each of them
or None if the default is None (computed elsewhere). A field of seconds whose key counts milliseconds says so with its
unit.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, field, fields, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

from quire.service.errors import ConfigError
from quire.service.original_keys import is_original_key, original_keys

T = TypeVar("T")
Config = TypeVar("Config")


class Assignment(NamedTuple):
    """A key of a file and what it is set to. Of a key given several times the line is that of the value that counts."""

    source: str
    line: int
    """From 1."""
    name: str
    values: tuple[str, ...]
    """One, or all that make a list where the reader of the file has it so."""

    @property
    def value(self) -> str:
        return self.values[0]

    @property
    def at(self) -> str:
        """The beginning of a complaint about it."""
        return f"{self.source}:{self.line}: "

    def with_values(self, values: tuple[str, ...]) -> Assignment:
        return self._replace(values=values)


class Unit(NamedTuple):
    """The unit that a key counts in. The field holds `times / per` of it: with MS_IN_S a file says 1500 and the field
    is 1.5."""

    name: str
    times: int = 1
    per: int = 1

    def in_field(self, value: Any) -> Any:
        """The field's value for that of a file."""
        scaled = value if self.times == 1 else value * self.times
        return scaled if self.per == 1 else scaled / self.per

    def in_file(self, value: Any) -> Any:
        """The file's value for that of a field."""
        return value if self.times == self.per == 1 else round(value * self.per / self.times)


NONE: Final = Unit("")
BYTES: Final = Unit("bytes")
MB: Final = Unit("megabytes")
MB_IN_BYTES: Final = Unit("megabytes", times=1 << 20)
MS: Final = Unit("milliseconds")
MS_IN_S: Final = Unit("milliseconds", per=1000)
SECONDS: Final = Unit("seconds")
MINUTES: Final = Unit("minutes")
MINUTES_IN_S: Final = Unit("minutes", times=60)
PERCENT: Final = Unit("percent")


class Bounds(NamedTuple):
    """Bounds of a value, inclusive; None is no bound. `choices` for text."""

    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.choices:
            return ", ".join(self.choices)
        if self.minimum is None and self.maximum is None:
            return ""
        if self.maximum is None:
            return f"at least {_plain(self.minimum)}"
        return f"{_plain(self.minimum)} to {_plain(self.maximum)}"


def _plain(bound: float | None) -> str:
    return "" if bound is None else str(int(bound) if bound == int(bound) else bound)


def conf_key(
    key: str,
    default: T,
    *,
    doc: str,
    unit: Unit = NONE,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    joined: bool = False,
    secret: bool = False,
    dynamic: bool = False,
) -> T:
    """Return a field of a configuration dataclass, given by `key` in a file.

    Args:
        key: the name; one name is declared in one class only.
        default: in the unit of the file, as are the bounds.
        doc: a line of help.
        unit: what the file counts, and by it what the field counts.
        joined: a text that is a list with commas to its reader: the values of a key given several times are put
        together.
        secret: a password: left out where the configuration is printed.
        dynamic: it can be changed while the process runs; see broker.dynamic.conf. Who reads the field must
        notice: read it at each use, or be told.
    """
    made_of = Key(key, "", None, default, doc, unit, Bounds(minimum, maximum, choices), joined, dynamic, secret)
    made: T = field(default=unit.in_field(default), metadata={"key": made_of}, repr=not secret)
    return made


class Key(NamedTuple):
    """One key of a configuration."""

    name: str
    field_name: str
    kind: Any
    """Type of the value in a file: int for a field of float whose default is whole."""
    default: Any
    doc: str
    unit: Unit
    bounds: Bounds
    joined: bool = False
    dynamic: bool = False
    """True if it can be changed while the process runs."""
    secret: bool = False
    """True if its values are shown nowhere."""

    @property
    def type_name(self) -> str:
        """The type as operators call it."""
        for kind, name in ((bool, "true or false"), (int, "whole number"), (float, "number"), (str, "text")):
            if self.kind is kind or (kind in get_args(self.kind) and type(None) in get_args(self.kind)):
                return name
        return "texts, with commas"


@cache
def keys_of(cls: type) -> Mapping[str, Key]:
    """The keys of a configuration dataclass by name, in the order of its fields. Fields without a key are left out."""
    assert is_dataclass(cls), f"{cls} is no dataclass"
    kinds = get_type_hints(cls)
    found: dict[str, Key] = {}
    for made in fields(cls):
        if "key" not in made.metadata:
            continue
        key = _key(made, kinds[made.name])
        assert key.name not in found, f"{cls.__name__}: two fields have the key {key.name}"
        found[key.name] = key
    return MappingProxyType(found)


def _key(made: Field[Any], kind: Any) -> Key:
    declared: Key = made.metadata["key"]
    whole = kind is float and type(declared.default) is int
    return declared._replace(field_name=made.name, kind=int if whole else kind)


def build(cls: Callable[..., Config], values: Mapping[str, Any]) -> Config:
    """A `cls` of field values; ConfigError if they do not go together."""
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def parse(assignments: Iterable[Assignment], keys: Mapping[str, Key]) -> dict[str, Any]:
    """The values, in the units of the file and by key, that the assignments give to `keys`. Keys that only the
    originals know are passed over. ConfigError with every problem, one a line. Pure but for the list of the originals'
    names, which is read only when a key is not ours."""
    values: dict[str, Any] = {}
    problems: list[str] = []
    for each in assignments:
        key = keys.get(each.name)
        if key is not None:
            try:
                values[each.name] = parse_value(key, *each.values)
            except ValueError as error:
                problems.append(f"{each.at}{each.name}: {error}")
        elif not is_original_key(each.name):
            problems.append(f"{each.at}no such key: {each.name!r}{_did_you_mean(each.name, keys)}")
    if problems:
        raise ConfigError("\n".join(problems))
    return values


def parse_value(key: Key, *values: str) -> Any:
    """The value written so; ValueError says what is wrong with it. `values`: of a key given several times, of which the
    first counts unless they make a list."""
    kind = key.kind
    optional = [part for part in get_args(kind) if part is not type(None)]
    if type(None) in get_args(kind):
        kind = optional[0]
    listed = key.joined or kind == tuple[str, ...]
    raw = ",".join(values) if listed else values[0]
    if raw == "" and type(None) in get_args(key.kind):
        return None  # (also where that is not the default: no port)
    if raw == "" and kind is not str:
        return key.default
    value: Any
    if kind is bool:
        if raw.lower() not in ("true", "false"):
            raise ValueError(f"neither true nor false: {raw!r}")
        return raw.lower() == "true"
    if kind is int or kind is float:
        try:
            value = kind(raw)
        except ValueError:
            whole = " whole" if kind is int and _is_number(raw) else ""
            raise ValueError(f"not a{whole} number: {raw!r}") from None
        _check_bounds(key.bounds, value)
        return value
    if kind is str:
        if key.bounds.choices and raw not in key.bounds.choices:
            raise ValueError(f"{raw!r} is none of {', '.join(key.bounds.choices)}")
        return raw
    assert kind == tuple[str, ...], f"{key.name}: a field cannot be of type {kind}"
    parts = tuple(part.strip() for part in raw.split(",") if part.strip())
    if key.bounds.choices and (others := [part for part in parts if part not in key.bounds.choices]):
        raise ValueError(f"{others[0]!r} is none of {', '.join(key.bounds.choices)}")
    return parts


def _is_number(raw: str) -> bool:
    try:
        float(raw)
    except ValueError:
        return False
    return True


def _check_bounds(bounds: Bounds, value: float) -> None:
    if value != value:
        raise ValueError("not a number: nan")
    if bounds.minimum is not None and value < bounds.minimum:
        raise ValueError(f"{value} is below {bounds.minimum:g}")
    if bounds.maximum is not None and value > bounds.maximum:
        raise ValueError(f"{value} is above {bounds.maximum:g}")


def nearest(name: str, keys: Iterable[str], count: int = 1) -> Sequence[str]:
    """The names that `name` may have been meant to be, of `keys` and of the originals', the nearest first."""
    return difflib.get_close_matches(name, [*keys, *sorted(original_keys())], n=count)


def _did_you_mean(name: str, keys: Iterable[str]) -> str:
    near = nearest(name, keys)
    return f" (did you mean {near[0]}?)" if near else ""


def render(keys: Iterable[Key], *, head: str = "", width: int = 100) -> str:
    """A documented file of all `keys` with their defaults: what conf/ holds."""
    blocks = [f"# {line}".rstrip() for line in head.splitlines()]
    for key in keys:
        blocks += [
            "",
            *(f"# {line}" for line in _wrapped(key.doc, width - 2)),
            f"{key.name}={render_value(key.default)}",
        ]
    return "\n".join(blocks) + "\n"


def _wrapped(text: str, width: int) -> list[str]:
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = ""
        line = f"{line} {word}" if line else word
    return [*lines, line]


def render_value(value: object) -> str:
    """Return a value as it stands in a file."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(str(part) for part in value)
        case _:
            return str(value)

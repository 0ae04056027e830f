"""Configuration: key=value files with the names Pulsar's and BookKeeper's operators know, read once into values.

    # a comment (also "!")
    brokerServicePort=6650          the first value of a key given twice wins, as in the originals

A configuration is a frozen dataclass whose fields are made with `conf_key`. A key that no field has is an error, with
its line and the nearest name, unless the originals know it: what becomes of those says quire.service.original_conf. An empty
value means the default, except for text.

Values: int and float in decimal, bool as true or false, str as it stands, tuple[str, ...] parted by commas, each of
them `| None` if the default is None (computed elsewhere).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

from quire.service.errors import ConfigError
from quire.service.original_keys import is_original_key, original_keys

T = TypeVar("T")
Config = TypeVar("Config")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a value, inclusive; None is no bound. `choices` for text."""

    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()


def conf_key(
    key: str,
    default: T,
    *,
    doc: str = "",
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> T:
    """A field of a configuration dataclass, given by `key` in the file; `doc` says what for, with unit and bounds."""
    metadata = {"key": key, "doc": doc, "bounds": Bounds(minimum, maximum, choices)}
    made: T = field(default=default, metadata=metadata)
    return made


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a configuration, as documented in conf/."""

    name: str
    field_name: str
    kind: Any
    default: Any
    doc: str
    bounds: Bounds


def keys_of(cls: type) -> dict[str, Key]:
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
    return found


def _key(made: Field[Any], kind: Any) -> Key:
    return Key(
        name=made.metadata["key"],
        field_name=made.name,
        kind=kind,
        default=made.default,
        doc=made.metadata["doc"],
        bounds=made.metadata["bounds"],
    )


def read_text(path: str | Path) -> str:
    """A file of UTF-8. ConfigError."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from error


def build(cls: type[Config], values: Mapping[str, Any]) -> Config:
    """A `cls` of field values; ConfigError if they do not go together."""
    try:
        return cls(**values)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def parse(text: str, cls: type, *, source: str) -> tuple[dict[str, Any], list[str]]:
    """The field values that `text` gives, and the keys in it that only the originals know, in order. Pure but for the
    list of the originals' names, which is read only when a key is not ours."""
    keys = keys_of(cls)
    values: dict[str, Any] = {}
    seen: set[str] = set()
    ignored: list[str] = []
    problems: list[str] = []
    for number, raw_line in enumerate(text.split("\n"), start=1):
        line = raw_line.strip()
        if not line or line[0] in "#!":
            continue
        name, equals, raw = line.partition("=")
        name, raw = name.strip(), raw.strip()
        at = f"{source}:{number}: "
        if not equals or not name:
            problems.append(f"{at}not a key=value line: {line[:80]!r}")
        elif name in seen:
            continue
        elif name in keys:
            seen.add(name)
            try:
                values[keys[name].field_name] = parse_value(keys[name], raw)
            except ValueError as error:
                problems.append(f"{at}{name}: {error}")
        elif is_original_key(name):
            seen.add(name)
            ignored.append(name)
        else:
            problems.append(f"{at}no such key: {name!r}{_nearest(name, keys)}")
    if problems:
        raise ConfigError("\n".join(problems))
    return values, ignored


def parse_value(key: Key, raw: str) -> Any:
    """The value written as `raw`; ValueError says what is wrong with it."""
    kind = key.kind
    optional = [part for part in get_args(kind) if part is not type(None)]
    if type(None) in get_args(kind):
        kind = optional[0]
    if raw == "" and (kind is not str or key.default is None):
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
    return tuple(part.strip() for part in raw.split(",") if part.strip())


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


def narrow(config: object, cls: type[Config], **more: Any) -> Config:
    """The configuration of one server out of a bigger one: fields of the same key are copied, `more` are field values
    that win. ConfigError if they do not go together."""
    given = {key.name: getattr(config, key.field_name) for key in keys_of(type(config)).values()}
    values = {key.field_name: given[key.name] for key in keys_of(cls).values() if key.name in given}
    return build(cls, {**values, **more})


def _nearest(name: str, keys: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, [*keys, *sorted(original_keys())], n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def render(cls: type, *, head: str = "", width: int = 100) -> str:
    """A documented file of all keys of `cls` with their defaults: what conf/ holds."""
    blocks = [f"# {line}".rstrip() for line in head.splitlines()]
    for key in keys_of(cls).values():
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
    """How a value stands in a file."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case tuple():
            return ",".join(str(part) for part in value)
        case _:
            return str(value)

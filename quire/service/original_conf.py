"""The keys of an original's configuration file that ours has no field for: older names, those without effect, and those that
are refused with a value that asks for what we cannot do. A key is in one of the three, or has a field."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from quire.service.config import build, parse, read_text
from quire.service.errors import ConfigError
from quire.service.log import get_logger

log = get_logger(__name__)

Config = TypeVar("Config")


@dataclass(frozen=True, slots=True)
class Refusal:
    """`asks` says of a value, not empty, whether it asks for what we cannot do."""

    asks: Callable[[str], bool]
    remedy: str


def is_true(value: str) -> bool:
    return value.lower() == "true"


def is_false(value: str) -> bool:
    return value.lower() == "false"


def refusal_of(refused: Mapping[str, Refusal], name: str, value: str) -> str | None:
    """Why `value` cannot be served, with the remedy; None if it can, or changes nothing."""
    found = refused.get(name)
    return found.remedy if found is not None and value and found.asks(value) else None


def assignments(text: str) -> list[tuple[int, str, str]]:
    """(line, from 0; key; value) of each line that is one.

    >>> assignments("# a=1\\nb = 2\\n")
    [(1, 'b', '2')]
    """
    found = []
    for number, raw in enumerate(text.split("\n")):
        line = raw.strip()
        name, equals, value = line.partition("=")
        if line and line[0] not in "#!" and equals:
            found.append((number, name.strip(), value.strip()))
    return found


def load_original(
    path: str | Path,
    cls: type[Config],
    aliases: Mapping[str, str],
    ignored: Mapping[str, str],
    refused: Mapping[str, Refusal],
) -> Config:
    """Read a file of the original's, or of ours, into a `cls`. ConfigError with every problem, one a line. Logs the keys that
    have no effect, once."""
    ours, without_effect, problems = sort_out(read_text(path), aliases, ignored, refused, source=str(path))
    try:
        values, more = parse(ours, cls, source=str(path))
    except ConfigError as error:
        raise ConfigError("\n".join([*problems, str(error)])) from error
    if problems:
        raise ConfigError("\n".join(problems))
    without_effect += more
    if without_effect:
        keys = " ".join(without_effect)
        log.info("configuration keys without effect here are ignored", file=str(path), keys=keys)
    return build(cls, values)


def sort_out(
    text: str,
    aliases: Mapping[str, str],
    ignored: Mapping[str, str],
    refused: Mapping[str, Refusal],
    *,
    source: str,
) -> tuple[str, list[str], list[str]]:
    """The text with only what `parse` is to see, in its lines, older names replaced; the keys without effect; and what is
    refused (pure)."""
    given = {name for _, name, _ in assignments(text)}
    lines = text.split("\n")
    without_effect: list[str] = []
    problems: list[str] = []
    seen: set[str] = set()
    for number, name, value in assignments(text):
        if name in seen:
            lines[number] = ""
            continue
        seen.add(name)
        remedy = refusal_of(refused, name, value)
        newer = aliases.get(name)
        if remedy is not None:
            problems.append(f"{source}:{number + 1}: {name}={value}: {remedy}")
            lines[number] = ""
        elif newer is not None and newer not in given:
            lines[number] = f"{newer}={value}"
        elif newer is not None or name in ignored or name in refused:
            without_effect.append(name)
            lines[number] = ""
    return "\n".join(lines), without_effect, problems


def render_tail(
    aliases: Mapping[str, str],
    ignored: Mapping[str, str],
    refused: Mapping[str, Refusal],
    *,
    about_ignored: str,
    about_refused: str,
) -> str:
    """The end of a file in conf/: what becomes of those keys, as comments. `ignored` has the reasons."""
    names_of: dict[str, list[str]] = {}
    for name, reason in ignored.items():
        names_of.setdefault(reason, []).append(name)
    lines = ["", *_comment(about_ignored)]
    for reason, names in names_of.items():
        lines += ["#", *_comment(f"{reason}:"), *_comment(" ".join(names), indent=4)]
    lines += ["", *_comment(about_refused)]
    for name, refusal in refused.items():
        lines += ["#", f"# {name}", *_comment(refusal.remedy, indent=4)]
    lines += ["", *_comment("Older names: " + ", ".join(f"{old} for {new}" for old, new in aliases.items()) + ".")]
    return "\n".join(lines) + "\n"


def _comment(text: str, *, indent: int = 0) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="#" + " " * (indent + 1), subsequent_indent="#" + " " * (indent + 1))

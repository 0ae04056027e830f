"""The keys of an original's configuration file that ours has no field for: older names, those without effect, and those that
are refused with a value that asks for what we cannot do."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass


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

"""Treatment of the keys of an original's configuration file, by one rule for every process.

    obeyed      the process has a field of the key, or of the newer name that it is an alias of
    harmless    tunes what is not there (threads, the JVM), or does not concern the process: any value is taken
    at rest     not obeyed, and no value but the originals' defaults is taken (and one that says what is done here anyway), so that
                the files that come with the originals start; any other value asks for something, and is refused
    refused     some values ask for what cannot be done, whatever the originals' default is
    unknown     a name that no published version of Pulsar or BookKeeper has is refused, with the nearest one

The rules stand in quire.service.unsupported; names and defaults in original_keys.txt.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Final, TypeVar

from quire.service.config import build, keys_of, parse, read_text
from quire.service.errors import ConfigError
from quire.service.log import get_logger
from quire.service.original_keys import is_original_key, is_original_value, same_value

log = get_logger(__name__)

Config = TypeVar("Config")


class Fate(Enum):
    """The classes of keys without a field."""

    HARMLESS = "harmless"
    AT_REST = "at rest"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Rule:
    """`reason` says what there is instead, or what is not there; of REFUSED it ends with the remedy.

    `ours` are values that say what is done here anyway. `asks` is REFUSED's: whether a value asks for what cannot be done."""

    fate: Fate
    reason: str
    ours: tuple[str, ...] = ()
    asks: Callable[[str], bool] | None = None


def refused(asks: Callable[[str], bool], reason: str) -> Rule:
    return Rule(Fate.REFUSED, reason, asks=asks)


def is_true(value: str) -> bool:
    return value.lower() == "true"


def is_false(value: str) -> bool:
    return value.lower() == "false"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules of one process: by key, or by the beginning of keys and a star. An exact name goes before a beginning, a
    longer beginning before a shorter one."""

    by_name: Mapping[str, Rule]
    aliases: Mapping[str, str]
    """Older name -> newer name, which has a field; where both are given the newer one counts. -1 is the originals' default of
    an older name: the newer one counts."""

    def find(self, name: str) -> Rule | None:
        found = self.by_name.get(name)
        if found is None:
            found = next((self.by_name[each] for each in self._beginnings() if name.startswith(each[:-1])), None)
        return found

    def _beginnings(self) -> list[str]:
        return sorted((name for name in self.by_name if name.endswith("*")), key=len, reverse=True)

    def problem_of(self, name: str, value: str) -> str | None:
        """Why `value` cannot be taken, with the remedy; None if it can. Of a key with a rule."""
        rule = self.find(name)
        assert rule is not None, f"{name} has no rule"
        if value == "" or rule.fate is Fate.HARMLESS:
            return None
        if rule.asks is not None:
            return rule.reason if rule.asks(value) else None
        if is_original_value(name, value) or any(same_value(value, each) for each in rule.ours):
            return None
        ours = f", or set it to {' or '.join(rule.ours)}" if rule.ours else ""
        return f"it would have no effect here ({rule.reason}); remove it, which leaves the default{ours}"


@dataclass(slots=True)
class Sorted:
    """The lines of a file by what becomes of them."""

    text: str
    """What `parse` is to see, in its lines, older names replaced."""
    without_effect: list[str] = field(default_factory=list)
    not_obeyed: list[str] = field(default_factory=list)
    """Keys at rest."""
    problems: list[str] = field(default_factory=list)


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
    path: str | Path, cls: type[Config], rules: Rules, *, overrides: Mapping[str, Any] | None = None
) -> Config:
    """Read a file of the original's, or of ours, into a `cls`. ConfigError with every problem, one a line. Logs the keys that
    have no effect. `overrides` are field values (not keys) that win over the file, as a command line does."""
    done = sort_out(read_text(path), keys_of(cls), rules, source=str(path))
    try:
        values, _ = parse(done.text, cls, source=str(path))
    except ConfigError as error:
        raise ConfigError("\n".join([*done.problems, str(error)])) from error
    check(done, str(path))
    return build(cls, {**values, **(overrides or {})})


def check(done: Sorted, source: str) -> None:
    """Raise ConfigError with the problems that were found; else log what has no effect, once."""
    if done.problems:
        raise ConfigError("\n".join(done.problems))
    if done.without_effect:
        keys = " ".join(done.without_effect)
        log.info("configuration keys without effect here are ignored", file=source, keys=keys)
    if done.not_obeyed:
        keys = " ".join(done.not_obeyed)
        log.info("configuration keys that are not obeyed here are at their defaults", file=source, keys=keys)


def sort_out(text: str, fields: Iterable[str], rules: Rules, *, source: str) -> Sorted:
    """Sort the lines of a file (pure). `fields` are the keys that are obeyed."""
    honoured = frozenset(fields)
    given = {name for _, name, _ in assignments(text)}
    lines = text.split("\n")
    done = Sorted("")
    seen: set[str] = set()
    for number, name, value in assignments(text):
        first, seen = name not in seen, seen | {name}
        newer = rules.aliases.get(name)
        if not first:
            lines[number] = ""
        elif name in honoured:
            pass
        elif newer is not None and newer not in given and value not in ("", "-1"):
            lines[number] = f"{newer}={value}"
        elif newer is not None:
            done.without_effect.append(name)
            lines[number] = ""
        elif (name in rules.by_name or is_original_key(name)) and (rule := rules.find(name)) is not None:
            problem = rules.problem_of(name, value)
            if problem is not None:
                done.problems.append(f"{source}:{number + 1}: {name}={value}: {problem}")
            elif value:
                (done.without_effect if rule.fate is Fate.HARMLESS else done.not_obeyed).append(name)
            lines[number] = ""
        elif is_original_key(name):
            done.without_effect.append(name)
            lines[number] = ""
    done.text = "\n".join(lines)
    return done


_ABOUT: Final = {
    Fate.HARMLESS: "Keys of the original that have no effect here, whatever they say: what there is instead, or what is not "
    "there to be tuned. Those that a file sets are named once in the log.",
    Fate.AT_REST: "Keys of the original that are not obeyed. A file may have them with the default of any version of the "
    "original since Pulsar 2.8 and BookKeeper 4.14, or with the value of the files that come with it; the log names them then. "
    "With another value they ask for something, and the process does not start.",
    Fate.REFUSED: "Keys of the original with which the process does not start, if they ask for what it cannot do.",
}


def render_tail(rules: Rules, *, fields: Iterable[str]) -> str:
    """The end of a file in conf/: what becomes of the other keys, as comments."""
    lines: list[str] = []
    for fate, about in _ABOUT.items():
        of_fate = {name: rule for name, rule in rules.by_name.items() if rule.fate is fate and name not in set(fields)}
        lines += ["", *_comment(about)]
        names_of: dict[str, list[str]] = {}
        for name, rule in of_fate.items():
            ours = f" (or {', '.join(rule.ours)})" if rule.ours else ""
            names_of.setdefault(rule.reason, []).append(f"{name}{ours}")
        for reason, names in names_of.items():
            lines += ["#", *_comment(f"{reason}:"), *_comment(" ".join(names), indent=4)]
    if rules.aliases:
        older = ", ".join(f"{old} for {new}" for old, new in rules.aliases.items())
        lines += ["", *_comment(f"Older names: {older}.")]
    return "\n".join(lines) + "\n"


def _comment(text: str, *, indent: int = 0) -> list[str]:
    return textwrap.wrap(text, 100, initial_indent="#" + " " * (indent + 1), subsequent_indent="#" + " " * (indent + 1))

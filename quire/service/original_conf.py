"""Treatment of the keys of an original's configuration file, by one rule for every process.

    obeyed      the process has a field of the key, or of the newer name that it is an alias of
    harmless    tunes what is not there (threads, the JVM), or does not concern the process: any value is taken
    at rest     not obeyed, and no value but the originals' defaults is taken (and one that says what is done here
                anyway), so that the files that come with the originals start; any other value asks for something, and
                is refused
    refused     some values ask for what cannot be done, whatever the originals' default is
    unknown     a name that no published version of Pulsar or BookKeeper has is refused, with the nearest one

The rules stand in quire.service.unsupported; names and defaults in original_keys.txt.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from quire.service.config import Assignment
from quire.service.errors import ConfigError
from quire.service.log import get_logger
from quire.service.original_keys import is_original_key, is_original_value, same_value

log = get_logger(__name__)

_SECRET: Final = re.compile("password|secret|token|credential|authentication.?param", re.IGNORECASE)


class Fate(Enum):
    """The classes of keys without a field."""

    HARMLESS = "harmless"
    AT_REST = "at rest"
    REFUSED = "refused"


class Rule(NamedTuple):
    """`reason` says what there is instead, or what is not there; of REFUSED it ends with the remedy.

    `ours` are values that say what is done here anyway. `asks` is REFUSED's: whether a value asks for what cannot be
    done."""

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
    """The rules of one process: by key, or by the beginning of keys and a star. An exact name goes before a beginning,
    a longer beginning before a shorter one."""

    by_name: Mapping[str, Rule]
    aliases: Mapping[str, str]
    """Older name -> newer name, which has a field; where both are given the newer one counts. -1 is the originals'
    default of an older name: the newer one counts."""

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
    """The assignments of a file by what becomes of them."""

    kept: list[Assignment] = field(default_factory=list)
    """Assignments for `parse`, older names replaced."""
    without_effect: list[str] = field(default_factory=list)
    not_obeyed: list[str] = field(default_factory=list)
    """Keys at rest."""
    problems: list[str] = field(default_factory=list)


def check(done: Sorted, process: str, source: str, *, quiet: bool = False) -> None:
    """Raise ConfigError with the problems that were found; else log the keys that are not obeyed, in one line, unless
    `quiet`."""
    if done.problems:
        raise ConfigError("\n".join(done.problems))
    kinds = {"without_effect": done.without_effect, "at_defaults": done.not_obeyed}
    told = {kind: " ".join(names) for kind, names in kinds.items() if names}
    if told and not quiet:
        log.warning("keys of the configuration that this server does not obey", server=process, file=source, **told)


def sort_out(
    assignments: Iterable[Assignment], fields: Iterable[str], rules: Rules, others: Iterable[str] = ()
) -> Sorted:
    """Sort the assignments of a file (pure). `fields` are the keys that are obeyed, `others` those of another server
    that reads the same file."""
    honoured, elsewhere = frozenset(fields), frozenset(others)
    given = list(assignments)
    names = {each.name for each in given}
    done = Sorted()
    for each in given:
        name, value, newer = each.name, each.value, rules.aliases.get(each.name)
        if name in honoured:
            done.kept.append(each)
        elif name in elsewhere:
            done.without_effect.append(name)
        elif newer is not None and newer not in names and value not in ("", "-1"):
            done.kept.append(each._replace(name=newer))
            names.add(newer)
        elif newer is not None:
            done.without_effect.append(name)
        elif (name in rules.by_name or is_original_key(name)) and (rule := rules.find(name)) is not None:
            problem = rules.problem_of(name, value)
            if problem is not None:
                done.problems.append(f"{each.at}{name}={shown(name, value)}: {problem}")
            elif value:
                (done.without_effect if rule.fate is Fate.HARMLESS else done.not_obeyed).append(name)
        elif is_original_key(name):
            done.without_effect.append(name)
        else:
            done.kept.append(each)
    return done


def shown(name: str, value: str) -> str:
    """Return a value as errors show it: of a key that may hold a secret, only that there is one.

    >>> shown("maxTenants", "10"), shown("managedLedgerPassword", "x")
    ('10', '***')
    """
    return "***" if _SECRET.search(name) else value


_ABOUT: Final = {
    Fate.HARMLESS: "Keys of the original that have no effect here with any value, by the reason: a replacement, or a "
    "missing feature. The log names once those that a file sets.",
    Fate.AT_REST: "Keys of the original that are not obeyed. A file may have them with the default of any version of "
    "the original since Pulsar 2.8 and BookKeeper 4.14, or with the value in its files; the log then names "
    "them. With another value the process does not start.",
    Fate.REFUSED: "Keys of the original that prevent a start with a value that needs a missing feature.",
}


def render_tail(rules: Rules, *, fields: Iterable[str]) -> str:
    """Return the end of a file in conf/: the effect of the other keys, as comments."""
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

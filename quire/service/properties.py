r"""Property files, read as the originals read theirs. `javaproperties` knows the lines; a key given
twice means different things:

    JAVA      broker.conf, standalone.conf: the last value counts
    COMMONS   bk_server.conf: a key given several times is a list; one that takes one value takes the first

Both: `key=value`, `key: value` and `key value`; comments begin with # or !; a backslash at the end of a line continues
it, `\t`, `\n`, `\u00e9` and the like are characters, and any other character after a backslash stands for itself, so
`\:` in a key.

COMMONS alone:

    include=other.conf, more.conf    the lines of other files, relative to the folder of this one, as if they stood here
    ${key}                           the first value of that key, if the file has it, else as it stands; `$${` is `${`
    white space after a backslash at the end of a line is dropped, and comments between continued lines are passed over

Sources: Pulsar's PulsarConfigurationLoader (java.util.Properties.load) and FieldParser; BookKeeper's
AbstractConfiguration, a CompositeConfiguration into which loadConf puts what PropertiesConfiguration has read; that
class, its PropertiesReader and resolveContainerStore (the first of a list) of commons-configuration 1.10 and 2.

Different here: files are UTF-8. White space at the end of a value is dropped (by Pulsar from numbers and lists). A text
with a comma in it stays whole. What takes a value from the process is refused: `${env:...}` and `${sys:...}`, and in
Pulsar's files a value that is `$NAME` or `${NAME}`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import chain
from pathlib import Path
from typing import Final

from quire.service.config import Assignment
from quire.service.errors import ConfigError

INCLUDES_MAX: Final = 16
"""Depth to which files may include each other."""

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_ENVIRONMENT: Final = re.compile(r"\$(\{\w+\}|\w+)")
_VARIABLE: Final = re.compile(r"\$?\$\{([^${}]*)\}")


class Grammar(Enum):
    """The reader of the originals that a file is written for."""

    JAVA = "java.util.Properties"
    COMMONS = "commons-configuration"


def read_properties(path: str | Path, grammar: Grammar) -> list[Assignment]:
    """The assignments of a file, one for each key, in the order of the lines. ConfigError."""
    return parse_properties(read_text(path), grammar, source=str(path), read=read_text)


def read_text(path: str | Path) -> str:
    """A file of UTF-8. ConfigError."""
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 at byte {error.start}") from error


def _no_file(path: str | Path) -> str:
    raise ConfigError(f"{path}: cannot be read: there is no folder to include files from")


def parse_properties(
    text: str, grammar: Grammar, *, source: str, read: Callable[[str | Path], str] = _no_file
) -> list[Assignment]:
    """The assignments of `text`, one for each key (pure but for `read`, which reads included files). ConfigError.

    >>> parse_properties("a=1\\nb: 2\\na=3", Grammar.JAVA, source="s")
    [Assignment(source='s', line=2, name='b', values=('2',)), Assignment(source='s', line=3, name='a', values=('3',))]
    """
    if grammar is Grammar.JAVA:
        last = {each.name: each for each in _java_assignments(text, source)}
        for each in last.values():
            if _ENVIRONMENT.fullmatch(each.value):
                raise ConfigError(f"{each.at}{each.name}: {each.value} is not looked up here; write its value")
        return sorted(last.values(), key=lambda each: each.line)
    merged: dict[str, Assignment] = {}
    for each in _commons_assignments(text, source, read, depth=0):
        first = merged.get(each.name)
        merged[each.name] = each if first is None else first.with_values(first.values + each.values)
    return [
        each.with_values(tuple(_interpolated(each, value, merged) for value in each.values)) for each in merged.values()
    ]


def _java_assignments(text: str, source: str, first_line: int = 1) -> Iterator[Assignment]:
    """Every assignment in turn, those of a key given twice too."""
    import javaproperties  # only when there is a file: 0.04 s of a start

    line = first_line
    try:
        for element in javaproperties.parse(text):
            if isinstance(element, javaproperties.KeyValue):
                name, value = element.key.strip(), element.value.strip()
                if not name:
                    raise ConfigError(f"{source}:{line}: not a key=value line: {element.source.strip()[:80]!r}")
                yield Assignment(source, line, name, (value,))
            line += len(_LINE_END.findall(element.source))
    except javaproperties.InvalidUEscapeError as error:
        raise ConfigError(
            f"{source}:{line}: {error.escape} is not a character: \\u and four hexadecimal digits"
        ) from error


def _commons_assignments(
    text: str, source: str, read: Callable[[str | Path], str], *, depth: int
) -> Iterator[Assignment]:
    if depth > INCLUDES_MAX:
        raise ConfigError(f"{source}: files include each other")
    for line, logical in _logical_lines(text):
        for each in _java_assignments(logical, source, line):
            if each.name.lower() != "include":
                yield each
                continue
            names = [name.strip() for name in each.value.split(",") if name.strip()]
            paths = [Path(source).parent / name for name in names]
            yield from chain.from_iterable(
                _commons_assignments(read(path), str(path), read, depth=depth + 1) for path in paths
            )


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number, line) with continued lines joined, as PropertiesReader joins them."""
    held, begun = "", 0
    for number, raw in enumerate(_LINE_END.split(text), start=1):
        line = raw.strip()
        if not line or line[0] in "#!":
            continue
        begun = begun if held else number
        held += line
        if (len(line) - len(line.rstrip("\\"))) % 2:
            held = held[:-1]
        else:
            yield begun, held
            held = ""
    if held:
        yield begun, held


def _interpolated(at: Assignment, text: str, given: dict[str, Assignment], inside: tuple[str, ...] = ()) -> str:
    def value_of(found: re.Match[str]) -> str:
        if found[0].startswith("$$"):
            return found[0][1:]
        name = found[1]
        if name.partition(":")[0] in ("env", "sys", "const"):
            raise ConfigError(f"{at.at}{at.name}: {found[0]} is not looked up here; write its value")
        if name in inside:
            raise ConfigError(f"{at.at}{at.name}: {found[0]} leads back to itself")
        return found[0] if name not in given else _interpolated(at, given[name].value, given, (*inside, name))

    return _VARIABLE.sub(value_of, text)

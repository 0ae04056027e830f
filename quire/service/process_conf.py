"""The configuration of one process: a list of the classes that its rooms declare, its file's grammar, and what becomes
of other keys.

    BROKER = Process("broker", BrokerConfig, Grammar.JAVA, BROKER_RULES, head="...")

BrokerConfig is a frozen dataclass whose fields are those classes. What this process has otherwise than the room, a
default or a bound, stands in `changes`; keys that it leaves no choice about, and does not read, in `fixed`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Generic, TypeVar, cast, get_type_hints

from quire.service.config import Bounds, Key, build, keys_of, parse, render
from quire.service.errors import ConfigError
from quire.service.original_conf import Rules, check, render_tail, sort_out
from quire.service.properties import Grammar, read_properties

Config = TypeVar("Config")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """Differences of a process from the room that declares a key; None is as there."""

    default: Any = None
    doc: str | None = None
    bounds: Bounds | None = None

    def of(self, key: Key) -> Key:
        return key._replace(
            default=key.default if self.default is None else self.default,
            doc=key.doc if self.doc is None else self.doc,
            bounds=key.bounds if self.bounds is None else self.bounds,
        )


@dataclass(frozen=True, slots=True)
class Process(Generic[Config]):
    """Configuration of one command; `name` is that of the command and of its output."""

    name: str
    config: type[Config]
    grammar: Grammar
    rules: Rules
    head: str = ""
    """The first lines of its file in conf/."""
    changes: Mapping[str, Change] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Keys of its classes that it does not read, and their values; None is as the room has it."""
    others: frozenset[str] = frozenset()
    """Keys of another server that reads the same file."""
    quiet: bool = False
    """A tool: nothing is logged of the keys that it does not obey."""

    def parts(self) -> dict[str, type]:
        """The classes whose keys it has, by field of the configuration."""
        return _parts(cast(Any, self.config))

    def keys(self) -> dict[str, Key]:
        """Its keys by name, in the order of its classes."""
        return {name: key for keys in self._keys_of_parts().values() for name, key in keys.items()}

    def _keys_of_parts(self) -> dict[str, dict[str, Key]]:
        found = {}
        for part, cls in self.parts().items():
            keys = {name: key for name, key in keys_of(cast(Any, cls)).items() if name not in self.fixed}
            found[part] = {
                name: self.changes[name].of(key) if name in self.changes else key for name, key in keys.items()
            }
        return found

    def places(self) -> dict[str, tuple[str, Key]]:
        """Return the part of the configuration that each key belongs to, with the key."""
        return {name: (part, key) for part, keys in self._keys_of_parts().items() for name, key in keys.items()}

    def build(self, values: Mapping[str, Any] | None = None) -> Config:
        """A configuration of values by key, in the units of the file; what is not given has its default. ConfigError if
        the values do not go together."""
        given = dict(values or {})
        parts = {}
        for part, keys in self._keys_of_parts().items():
            cls = self.parts()[part]
            chosen = {name: given.pop(name, key.default) for name, key in keys.items()}
            declared = keys_of(cls)
            decided = {name: value for name, value in self.fixed.items() if name in declared and value is not None}
            each = {**chosen, **decided}
            made_of = {declared[name].field_name: declared[name].unit.in_field(value) for name, value in each.items()}
            parts[part] = build(cls, made_of)
        assert not given, f"{self.name} has no key {', '.join(given)}"
        return build(self.config, parts)

    def values_of(self, config: Config) -> dict[str, Any]:
        """Return the values of a configuration, by key, in the units of the file."""
        return {
            name: key.unit.in_file(getattr(getattr(config, part), key.field_name))
            for part, keys in self._keys_of_parts().items()
            for name, key in keys.items()
        }

    def load(self, path: str | Path | None, overrides: Mapping[str, Any] | None = None) -> Config:
        """Read a file of the original's, or of ours; the defaults without one. ConfigError with every problem, one a
        line. Logs the keys that are not obeyed, once. `overrides` are values by key that win over the file, as a
        command line does."""
        if path is None:
            return self.build(overrides)
        keys = self.keys()
        done = sort_out(read_properties(path, self.grammar), keys, self.rules, self.others)
        try:
            values = parse(done.kept, keys)
        except ConfigError as error:
            raise ConfigError("\n".join([*done.problems, str(error)])) from error
        check(done, self.name, str(path), quiet=self.quiet)
        return self.build({**values, **(overrides or {})})

    def render(self) -> str:
        """Return the text of its file in conf/."""
        keys = self.keys()
        return render(keys.values(), head=self.head) + render_tail(self.rules, fields=keys)


@cache
def _parts(config: Any) -> dict[str, type]:
    assert is_dataclass(config), f"{config} is no dataclass"
    kinds = get_type_hints(config)
    return {each.name: kinds[each.name] for each in fields(config)}


def declared_twice(classes: Iterable[type]) -> list[str]:
    """Keys that more than one of the classes declares, with their classes."""
    where: dict[str, list[str]] = {}
    for cls in dict.fromkeys(classes):
        for name in keys_of(cls):
            where.setdefault(name, []).append(cls.__name__)
    return [f"{name}: {', '.join(names)}" for name, names in where.items() if len(names) > 1]

"""Keys whose values change while a process runs: what may be stored, and what holds then (pure, but for the door).

Why this is hard: the rooms of a process read their options, frozen dataclasses, wherever they need them, and some work
out other things from them. A value that changes must neither be missed by a room nor be half obeyed. So a process works
on copies of its options that are its own (`own_parts`), and the only door to them is `obey`: it changes the fields in
place, in one step of the event loop, and returns the names of the keys that have changed, for the rooms that keep what
they have worked out. Rooms that read a field at each use need nothing.

Values are stored as texts by key, for all processes of a cluster, perhaps by another program, which may have stored
before this process started. What can be obeyed at a start, and later, is decided here:

    a key of ours, dynamic              its type and bounds are checked as in the file
    a key of ours, not dynamic          only the value that the file has anyway
    a key of the originals alone        by the rules of the file (quire.service.original_conf)
    an unknown key                      left alone: other programs store their own

Setting a value (`refusal`) is stricter: only dynamic keys of ours can be set.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Generic, NamedTuple, TypeVar

from quire.service.config import Key, nearest, parse_value, render_value
from quire.service.original_conf import shown
from quire.service.original_keys import is_original_key, same_value
from quire.service.process_conf import Process

Config = TypeVar("Config")


class Obeyed(NamedTuple):
    """Outcome of `obey`."""

    changed: frozenset[str]
    """Keys whose values have changed."""
    problems: tuple[str, ...]
    """Values that cannot be obeyed, each with the reason and the remedy; the last good value of their keys holds."""


class DynamicConf(Generic[Config]):
    """The current values of one process. `config` is its configuration as it was read, whose parts are copied."""

    def __init__(self, process: Process[Config], config: Config) -> None:
        self._process = process
        self._places = process.places()
        self._configured = process.values_of(config)
        self._stored: dict[str, Any] = {}
        """Values that hold instead, by key, in the units of the file."""
        self.config: Config = own_parts(process, config)
        """The configuration with the values that hold now. Pass its parts to the rooms."""

    def names(self) -> list[str]:
        """Return the keys that can be changed."""
        return sorted(name for name, (_, key) in self._places.items() if key.dynamic)

    def values(self) -> dict[str, str]:
        """Return the current values of all keys as a file has them; secrets are hidden."""
        now = self._process.values_of(self.config)
        return {name: _shown(self._places[name][1], render_value(value)) for name, value in now.items()}

    def refusal(self, name: str, text: str) -> str:
        """Return why a value cannot be set; "" if it can.

        >>> from quire.servers.broker.config import BROKER
        >>> conf = DynamicConf(BROKER, BROKER.build({"clusterName": "a"}))
        >>> conf.refusal("maxTopicsPerNamespace", "5"), conf.refusal("maxTopicsPerNamespace", "five")
        ('', "maxTopicsPerNamespace: not a number: 'five'")
        """
        place = self._places.get(name)
        if place is None:
            newer = self._process.rules.aliases.get(name)
            if newer is not None:
                return f"{name} is an older name of {newer}: set that"
            if is_original_key(name):
                return f"{name} is not obeyed by this server, so that it cannot be changed (docs/configuration.md)"
            near = nearest(name, self._places)
            return f"no such key: {name[:100]!a}{f' (did you mean {near[0]}?)' if near else ''}"
        _, key = place
        if not key.dynamic:
            return f"{name} cannot be changed while a broker runs: change it in the file, and restart the brokers"
        problem = _problem(key, text)
        return f"{name}: {problem}" if problem else ""

    def obey(self, stored: Mapping[str, str]) -> Obeyed:
        """Let the stored values hold, and the file's where nothing is stored."""
        wanted: dict[str, Any] = {}
        problems: list[str] = []
        for name, text in self._without_aliases(stored).items():
            place = self._places.get(name)
            problem = self._problem_of_stored(name, text)
            if problem:
                problems.append(f"{name}={shown(name, text)}: {problem}")
                if name in self._stored:
                    wanted[name] = self._stored[name]
            elif place is not None and place[1].dynamic:
                wanted[name] = parse_value(place[1], text)
        changed = {
            name
            for name in wanted.keys() | self._stored.keys()
            if wanted.get(name, self._configured[name]) != self._stored.get(name, self._configured[name])
        }
        for name in changed:
            part, key = self._places[name]
            # The door: options are frozen for everything else.
            value = key.unit.in_field(wanted.get(name, self._configured[name]))
            object.__setattr__(getattr(self.config, part), key.field_name, value)
        self._stored = wanted
        return Obeyed(frozenset(changed), tuple(problems))

    def _without_aliases(self, stored: Mapping[str, str]) -> dict[str, str]:
        """Return the values with older names replaced; a value of the newer name counts."""
        aliases = self._process.rules.aliases
        older = {aliases[name]: text for name, text in stored.items() if name in aliases and text not in ("", "-1")}
        return {**older, **{name: text for name, text in stored.items() if name not in aliases}}

    def _problem_of_stored(self, name: str, text: str) -> str:
        place = self._places.get(name)
        if place is not None:
            _, key = place
            if key.dynamic:
                return _problem(key, text)
            value = render_value(self._configured[name])
            return "" if same_value(value, text) else f"it cannot be changed while a broker runs; {_REMEDY}"
        if not is_original_key(name) or self._process.rules.find(name) is None:
            return ""
        found = self._process.rules.problem_of(name, text)
        return f"{found}; {_REMEDY}" if found else ""


_REMEDY = "delete it (DELETE /admin/v2/brokers/configuration/NAME), and set it in the file if that is wanted"


def _problem(key: Key, text: str) -> str:
    try:
        parse_value(key, text)
    except ValueError as error:
        return str(error)
    return ""


def own_parts(process: Process[Config], config: Config) -> Config:
    """Return the configuration with copies of the parts that have dynamic keys, which nothing else refers to."""
    parts = {part for part, key in process.places().values() if key.dynamic}
    whole: Any = config
    copied: Config = replace(whole, **{part: replace(getattr(config, part)) for part in parts})
    return copied


def _shown(key: Key, text: str) -> str:
    """Return a value as it is shown: of a secret, only that there is one."""
    return "***" if key.secret and text else shown(key.name, text) if text else text

"""Entry filters of a broker, loaded when it starts.

`entryFiltersDirectory` has a file NAME.py for each filter, with one class derived from `EntryFilter`.
`entryFilterNames` are the names of those that every subscription has. With `allowOverrideEntryFilters` the policy
`entryFilters` of a namespace or topic names others of the folder, which are loaded at the start too: nothing is
imported that is not there then, so a policy cannot name code of another place.

Source: Pulsar's EntryFilterProvider and EntryFilterSupport, where the folder has archives of Java classes.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType

from broker.entry_filters.entry_filter import EntryFilter
from quire.service.errors import ConfigError
from quire.service.log import get_logger

log = get_logger(__name__)

MODULES = "quire_entry_filter_"
"""Prefix of the modules' names, so that a filter named `json` hides nothing."""


class UnknownFilterError(Exception):
    """A policy names a filter that the broker does not have."""


class EntryFilters:
    """Filters of one broker. `by_name`: those that policies may name; None: they may name none."""

    __slots__ = ("_by_name", "standard")

    def __init__(
        self, standard: tuple[EntryFilter, ...] = (), by_name: Mapping[str, EntryFilter] | None = None
    ) -> None:
        self.standard = standard
        """Filters of every subscription of which no policy says otherwise."""
        self._by_name = by_name

    @property
    def may_be_overridden(self) -> bool:
        """Return whether policies of namespaces and topics count."""
        return self._by_name is not None

    def named(self, names: Iterable[str]) -> tuple[EntryFilter, ...]:
        """Return the filters of a policy, in order. Raises UnknownFilterError."""
        known = self._by_name or {}
        if missing := [name for name in names if name not in known]:
            raise UnknownFilterError(f"entry filter {missing[0]!a} is not in entryFiltersDirectory of this broker")
        return tuple([known[name] for name in names])


def load_filters(folder: str, names: tuple[str, ...], *, may_override: bool) -> EntryFilters:
    """Load the filters that the configuration asks for. Raises ConfigError."""
    if not names and not may_override:
        return EntryFilters()
    loaded: dict[str, EntryFilter] = {}
    for name in names:
        path = Path(folder) / f"{name}.py"
        try:
            if not name.isidentifier() or not path.is_file():
                raise ConfigError(f"there is no such file: {path}")
            loaded[name] = _load(name, path)
        except ConfigError as error:
            raise ConfigError(f"entryFilterNames: filter {name!a}: {error}") from error
    if may_override:
        for path in sorted(Path(folder).glob("*.py")):
            if path.stem not in loaded and path.stem.isidentifier():
                try:
                    loaded[path.stem] = _load(path.stem, path)
                except ConfigError as error:
                    log.warning("entry filter not loaded", file=str(path), reason=str(error))
    return EntryFilters(tuple(loaded[name] for name in names), loaded if may_override else None)


def _load(name: str, path: Path) -> EntryFilter:
    """Return the filter of a file. Raises ConfigError."""
    module = _module(name, path)
    found = [
        each
        for each in vars(module).values()
        if inspect.isclass(each) and issubclass(each, EntryFilter) and each.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise ConfigError(f"{path} must have one class derived from broker.entry_filters.EntryFilter, not {len(found)}")
    try:
        made: EntryFilter = found[0]()
    except Exception as error:
        raise ConfigError(f"{found[0].__name__}() of {path}: {error!r}") from error
    log.info("entry filter loaded", filter=name, file=str(path))
    return made


def _module(name: str, path: Path) -> ModuleType:
    full = MODULES + name
    spec = importlib.util.spec_from_file_location(full, path)
    assert spec is not None, "a .py file has a loader"
    assert spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    sys.modules[full] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[full]
        raise ConfigError(f"{path} cannot be imported: {error!r}") from error
    return module

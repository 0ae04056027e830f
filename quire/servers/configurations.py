"""Every process that reads a configuration, and what is made of its keys: the files in conf/, docs/configuration.md,
and the answer of `quire config explain`.

    scripts/configuration       writes the files again, and the tables of permissions in docs/security.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from broker.security.authorization.document import with_permissions
from quire.servers.autorecovery.config import AUTORECOVERY
from quire.servers.bookie.config import BOOKIE
from quire.servers.broker.config import BROKER
from quire.servers.cluster_config import SHELL
from quire.servers.standalone.config import STANDALONE
from quire.service.config import Key, nearest, render_value
from quire.service.original_conf import Fate
from quire.service.original_keys import is_original_key
from quire.service.process_conf import Process

PROCESSES: Final[tuple[Process[Any], ...]] = (STANDALONE, BROKER, BOOKIE, AUTORECOVERY, SHELL)

FILES: Final[Mapping[str, Process[Any]]] = MappingProxyType(
    {"standalone.conf": STANDALONE, "broker.conf": BROKER, "bk_server.conf": BOOKIE}
)
"""By the name in conf/."""

TABLE: Final = "docs/configuration.md"
PERMISSIONS: Final = "docs/security.md"
"""Page with the permission of each command and call; the rest of it is written by hand."""
_ROOT: Final = Path(__file__).resolve().parents[2]


def file_of(process: Process[Any]) -> str:
    """The name of the file that a process reads."""
    return next((name for name, each in FILES.items() if each is process), "bk_server.conf")


# --- explaining one key


def explain(name: str) -> str | None:
    """Return everything known of a key, as text; None if neither we nor the originals have it."""
    obeyed = [_obeyed(key, processes) for key, processes in _variants(name)]
    others = [f"{_who(process)}: {fate}" for process in PROCESSES if (fate := _fate(process, name))]
    if not obeyed and not others and not is_original_key(name):
        return None
    if not obeyed and not others:
        others = ["a key of the originals that no server here obeys; it has no effect"]
    return "\n".join([name, *obeyed, *others])


def near(name: str) -> list[str]:
    """Names that `name` may have been meant to be, the nearest first."""
    return list(dict.fromkeys(nearest(name, _names(), 3)))


def _names() -> set[str]:
    return set().union(*(process.keys() for process in PROCESSES))


def _who(process: Process[Any]) -> str:
    return f"quire {process.name} ({file_of(process)})"


def _variants(name: str) -> list[tuple[Key, list[Process[Any]]]]:
    """The key as the processes have it, and which have it so."""
    found: dict[Key, list[Process[Any]]] = {}
    for process in PROCESSES:
        key = process.keys().get(name)
        if key is not None:
            found.setdefault(key, []).append(process)
    return list(found.items())


def _obeyed(key: Key, processes: list[Process[Any]]) -> str:
    facts = {
        "obeyed by": ", ".join(_who(process) for process in processes),
        "type": key.type_name,
        "unit": key.unit.name,
        "default": render_value(key.default) or "(empty)",
        "bounds": str(key.bounds),
        "changes": "while brokers run (POST /admin/v2/brokers/configuration)" if key.dynamic else "",
    }
    return "\n".join([f"  {key.doc}", *(f"    {fact:<10} {value}" for fact, value in facts.items() if value)])


def _fate(process: Process[Any], name: str) -> str:
    """Return the effect of a key that a process does not obey; empty if it does, or if there is nothing to report."""
    newer = process.rules.aliases.get(name)
    if newer is not None:
        return f"an older name of {newer}"
    keys = process.keys()
    if name in keys or process.quiet:
        return ""
    if name in process.others:
        return "of the bookie that reads the same file; it has no effect"
    rule = process.rules.find(name) if name in process.rules.by_name or is_original_key(name) else None
    if rule is None:
        return ""
    ours = f" or {' or '.join(rule.ours)}" if rule.ours else ""
    match rule.fate:
        case Fate.HARMLESS:
            return f"no effect with any value ({rule.reason})"
        case Fate.AT_REST:
            return f"not obeyed; accepted only with the originals' default{ours} ({rule.reason})"
        case Fate.REFUSED:
            return f"not obeyed; refused with a value that needs the missing feature ({rule.reason})"


# --- the table of all keys


_HEAD: Final = """# Configuration keys

`scripts/configuration` generates this page from the keys that the rooms declare. `quire config explain KEY` prints the
same for one key, and the effect of a key that is not listed here. If servers differ, a key has a row for each.
[Keys that are not obeyed](unsupported.md) are listed at the end of each file in [conf/](../conf), and
[bookie-keys.md](bookie-keys.md) has the verdict on every key of BookKeeper's bookies. Keys that are *dynamic* can be
changed while brokers run: see [operating.md](operating.md#changing-brokers-while-they-run).

| key | read by | type | default | bounds | unit | |
|---|---|---|---|---|---|---|
"""


_CHANGES: Final = "*Dynamic.*"


def table() -> str:
    """Return the text of docs/configuration.md."""
    return _HEAD + "".join(_rows())


def _rows() -> Iterator[str]:
    for name in sorted(_names(), key=str.lower):
        for key, processes in _variants(name):
            read_by = ", ".join(process.name for process in processes)
            default = f"`{render_value(key.default)}`" if render_value(key.default) else ""
            doc = f"{key.doc} {_CHANGES}" if key.dynamic else key.doc
            cells = (f"`{name}`", read_by, key.type_name, default, str(key.bounds), key.unit.name, doc)
            yield "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |\n"


def made() -> dict[str, str]:
    """The text of each file that is made of the keys, or of other tables, by its path in the tree."""
    return {
        **{f"conf/{name}": process.render() for name, process in FILES.items()},
        TABLE: table(),
        PERMISSIONS: with_permissions((_ROOT / PERMISSIONS).read_text(encoding="utf-8")),
    }


if __name__ == "__main__":
    for path, text in made().items():
        Path(path).write_text(text, encoding="utf-8")

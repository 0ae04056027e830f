"""Files of the original's, read by each server: values, older names, and what is refused, as text."""

from __future__ import annotations

from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import Any

from quire.metadata.errors import InvalidConnectStringError
from quire.metadata.layouts import FLAT, HIERARCHICAL
from quire.servers.autorecovery.config import AUTORECOVERY
from quire.servers.bookie.config import BOOKIE
from quire.servers.bookie.located import located, zookeeper_config
from quire.servers.broker.config import BROKER
from quire.servers.cluster_config import SHELL, load_config
from quire.servers.standalone.config import STANDALONE
from quire.service.errors import ConfigError
from tests.support.datadriven import Line

ROOT = Path(__file__).resolve().parents[3]
PROCESSES: dict[str, Any] = {
    "broker": BROKER,
    "bookie": BOOKIE,
    "autorecovery": AUTORECOVERY,
    "shell": SHELL,
    "standalone": STANDALONE,
}
NAMES = {id(HIERARCHICAL): "hierarchical", id(FLAT): "flat"}


class Reader:
    """A server that reads files.

    `conf: a=1 ; b=2` reads two lines and shows `defaults` or `differs`, or the problems; `file: PATH` reads one of the
    repository, and `but: LINE` the same file without a line. `get` shows fields, `located` those that depend on the
    host, and `stores` or `zookeeper` where the metadata of a broker or a bookie are.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.process = PROCESSES[name]
        self.path = folder / "its.conf"
        self.load = load_config if name == "shell" else self.process.load
        self.config = self.process.build()

    def answer(self, step: Line) -> str:
        try:
            return self.answered(step)
        except (ConfigError, InvalidConnectStringError) as error:
            return str(error).replace(f"{self.path.parent}/", "").replace(f"{ROOT}/", "")

    def answered(self, step: Line) -> str:
        match step.name:
            case "conf":
                self.path.write_text("".join(f"{line}\n" for line in step.word().split(" ; ")) if step.words else "")
                self.config = self.load(self.path)
                return "defaults" if self.config == self.process.build() else "differs"
            case "file":
                self.path.write_text((ROOT / step.word()).read_text())
                self.config = self.load(self.path)
            case "but":
                self.path.write_text(self.path.read_text().replace(f"{step.word()}\n", ""))
                self.config = self.load(self.path)
            case "missing":
                self.config = self.load(self.path.with_name("none.conf"))
            case "get":
                fields, step.words = step.words, []
                return ", ".join(shown(attrgetter(field)(self.config)) for field in fields)
            case "zookeeper":
                store, root = zookeeper_config(self.config)
                fields, step.words = step.words or ["servers", "chroot"], []
                return ", ".join([*(shown(attrgetter(field)(store)) for field in fields), root])
            case "located":
                fields, step.words = step.words, []
                found = located(self.config, "/ledgers")
                return ", ".join(shown(attrgetter(field)(found)) for field in fields)
            case "stores":
                store, root = self.config.metadata.stores()
                return f"{shown(store.servers)} {store.chroot} {root}"
            case _:
                raise step.unknown()
        return ""


def shown(value: object) -> str:
    return NAMES.get(id(value)) or (value.name if isinstance(value, Enum) else str(value)) or "empty"

"""State of a local cluster between commands: its processes, in `cluster.json`.

A process is identified by its pid and the moment the kernel started it, so that a reused pid is not taken for it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tools.local_cluster.errors import StateError
from tools.local_cluster.plan import Addresses, Kind, Node, Plan

FILE = "cluster.json"
VERSION = 1


@dataclass(frozen=True, slots=True)
class Pid:
    """Permanent identity of a process."""

    pid: int
    started: int
    """Start time in ticks since the machine's start."""

    @property
    def alive(self) -> bool:
        """Return whether it runs, or is stopped; False for a zombie."""
        found = stat_of(self.pid)
        return found is not None and found[1] == self.started and found[0] not in "ZX"

    @property
    def paused(self) -> bool:
        found = stat_of(self.pid)
        return found is not None and found[1] == self.started and found[0] in "Tt"


def stat_of(pid: int) -> tuple[str, int] | None:
    """Return the state letter and the start of a process; None if there is none."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[19])


def pid_of(pid: int) -> Pid | None:
    """Return the current process with that pid."""
    found = stat_of(pid)
    return None if found is None else Pid(pid, found[1])


@dataclass(slots=True, kw_only=True)
class State:
    """State of a cluster. Written after every change, atomically."""

    plan: Plan
    nodes: list[Node]
    pids: dict[str, Pid] = field(default_factory=dict)
    """By name: the last process, alive or not."""

    @property
    def addresses(self) -> Addresses:
        return Addresses(
            zookeepers=tuple(node for node in self.nodes if node.kind is Kind.ZOOKEEPER),
            brokers=tuple(node for node in self.nodes if node.kind is Kind.BROKER),
            secure=self.plan.secure,
        )

    def node(self, name: str) -> Node:
        """Return a process by its name, or by a bookie's id. Raises StateError."""
        for node in self.nodes:
            if name in (node.name, node.address):
                return node
        raise StateError(f"there is no {name} in this cluster, but {', '.join(node.name for node in self.nodes)}")

    # --- the file

    def write(self, folder: Path) -> None:
        text = json.dumps(self.to_json(), indent=1)
        fresh = folder / f"{FILE}.new"
        fresh.write_text(text)
        os.replace(fresh, folder / FILE)

    def to_json(self) -> dict[str, Any]:
        plan = self.plan
        return {
            "version": VERSION,
            "plan": {
                "zookeepers": plan.zookeepers,
                "bookies": plan.bookies,
                "brokers": plan.brokers,
                "recoveries": plan.recoveries,
                "session_timeout_ms": plan.session_timeout_ms,
                "secure": plan.secure,
                "log_level": plan.log_level,
                "conf": {kind.value: {key: str(value) for key, value in of.items()} for kind, of in plan.conf.items()},
            },
            "nodes": [{"name": node.name, "kind": node.kind.value, "ports": list(node.ports)} for node in self.nodes],
            "pids": {name: [pid.pid, pid.started] for name, pid in self.pids.items()},
        }


def read(folder: Path) -> State:
    """Read the state. Raises StateError if there is no cluster."""
    try:
        found = json.loads((folder / FILE).read_text())
    except FileNotFoundError:
        raise StateError(f"no cluster in {folder}: create one with scripts/cluster up") from None
    if found.get("version") != VERSION:
        raise StateError(f"{folder / FILE} was written by another version: stop its processes and remove the folder")
    plan = dict(found["plan"])
    plan["conf"] = {Kind(kind): of for kind, of in plan["conf"].items()}
    return State(
        plan=Plan(**plan),
        nodes=[Node(name=each["name"], kind=Kind(each["kind"]), ports=tuple(each["ports"])) for each in found["nodes"]],
        pids={name: Pid(*pid) for name, pid in found["pids"].items()},
    )

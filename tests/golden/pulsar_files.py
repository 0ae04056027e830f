"""Files written by a Pulsar, at several moments."""

from __future__ import annotations

import base64
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

from cursors.position_info import Stored, decode_chain, decode_node
from quire.ledger.position import Position

FOLDER = Path(__file__).with_name("pulsar")


ROOT = "/pulsar"
"""The chroot of the broker."""


MOMENTS = ("running", "stopped")


@cache
def manifest() -> dict[str, Any]:
    return dict(json.loads((FOLDER / "manifest.json").read_text()))


@cache
def nodes(moment: str) -> dict[str, bytes]:
    found = json.loads((FOLDER / f"zk-{moment}.json").read_text())
    return {path: base64.b64decode(node["data"]) for path, node in found.items()}


@cache
def ledgers(moment: str) -> dict[int, dict[str, Any]]:
    return {one["ledger"]: one for one in json.loads((FOLDER / f"ledgers-{moment}.json").read_text())}


@cache
def entries(moment: str) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for line in (FOLDER / f"entries-{moment}.jsonl").read_text().splitlines():
        entry = json.loads(line)
        assert entry["entry"] == len(found.setdefault(entry["ledger"], []))
        found[entry["ledger"]].append(bytes.fromhex(entry["hex"]))
    return found


def logs(moment: str) -> dict[str, bytes]:
    """Values of the nodes of managed ledgers by name."""
    pattern = re.compile(rf"{ROOT}/managed-ledgers/([^/]+/[^/]+/persistent/[^/]+)")
    return {found[1]: value for path, value in nodes(moment).items() if (found := pattern.fullmatch(path))}


def cursor_nodes(moment: str) -> dict[tuple[str, str], bytes]:
    pattern = re.compile(rf"{ROOT}/managed-ledgers/([^/]+/[^/]+/persistent/[^/]+)/([^/]+)")
    return {(found[1], found[2]): value for path, value in nodes(moment).items() if (found := pattern.fullmatch(path))}


def internal_stats(log: str) -> dict[str, Any] | None:
    tenant, namespace, _, local = log.split("/")
    stats = manifest()["internalStats"]
    found = (
        stats.get(local) if (tenant, namespace) == ("public", "default") else stats.get(f"{tenant}/{namespace}/{local}")
    )
    return None if found is None else dict(found)


def position(text: str) -> Position:
    ledger_id, entry_id = text.split(":")
    return Position(int(ledger_id), int(entry_id))


def ranges_text(stored: Stored) -> str:
    """Return the ranges in the form of internalStats."""
    parts = [f"({ledger}:{first - 1}..{ledger}:{last}]" for ledger, first, last in stored.ranges.ranges()]
    return f"[{','.join(parts)}]"


def stored_running(log: str, cursor: str) -> Stored:
    """Return the state of a cursor of the running broker."""
    node, snapshot = decode_node(cursor_nodes("running")[log, cursor])
    if node.ledger_id < 0:
        return snapshot
    return decode_chain(entries("running")[node.ledger_id][-1:])


def step(start: str) -> dict[str, Any]:
    return next(one for one in manifest()["workload"] if one["what"].startswith(start))


def places(ids: list[str]) -> list[Position]:
    return [Position(*(int(part) for part in text.strip("()").split(",")[:2])) for text in ids]

"""Trees of metadata written by the originals."""

from __future__ import annotations

import base64
import json
from pathlib import Path

GOLDEN = Path(__file__).parent / "bookkeeper"


def tree_of(name: str) -> dict[str, tuple[bytes, bool]]:
    nodes = json.loads((GOLDEN / f"zk/{name}.json").read_text())
    return {path: (base64.b64decode(node["data"]), node["ephemeral"]) for path, node in nodes.items()}

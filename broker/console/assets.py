"""Files of the console: page, styles and scripts, which are in the package. None holds anything that is secret."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from types import MappingProxyType
from typing import Final, NamedTuple

BASE: Final = "/console/"
KINDS: Final = MappingProxyType(
    {
        "html": "text/html; charset=utf-8",
        "css": "text/css; charset=utf-8",
        "js": "text/javascript; charset=utf-8",
        "svg": "image/svg+xml",
    }
)
"""Media types by the end of a name; other files are not served."""


class Asset(NamedTuple):
    """One file as it is served."""

    body: bytes
    media_type: str
    tag: str
    """Its ETag: a digest of the body."""


def load() -> Mapping[str, Asset]:
    """Return the files by path, such as `/console/app.js`; `/console/` is the page itself. Reads some 200 KB."""
    found: dict[str, Asset] = {}
    for path, each in _walk(files("broker.console") / "static", BASE):
        kind = KINDS.get(path.rpartition(".")[2])
        if kind is not None:
            body = each.read_bytes()
            found[path] = Asset(body, kind, f'"{sha256(body).hexdigest()[:20]}"')
    found[BASE] = found[f"{BASE}index.html"]
    return MappingProxyType(found)


def _walk(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _walk(each, f"{path}{each.name}/")
        else:
            yield f"{path}{each.name}", each

"""Nodes of the metadata store that a test expects to be there."""

from __future__ import annotations

from quire.metadata.store import MetadataStore, Node


async def node_at(store: MetadataStore, path: str) -> Node:
    """Return the node; AssertionError if there is none."""
    node = await store.get(path)
    assert node is not None, f"no node {path}"
    return node

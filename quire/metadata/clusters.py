"""A cluster's metadata as a whole: created, formatted, destroyed, for `initnewcluster`, `metaformat` and
`nukeexistingcluster`. The commands ask for confirmation themselves.

    child of the root                new cluster   format             nuke
    LAYOUT, INSTANCEID               created       created again      deleted
    available/, available/readonly/  created       kept, or created   deleted; refused while bookies exist
    ledgers and their folders                      deleted            deleted
    cookies, idgen, idgen-long                     deleted            deleted
    underreplication                               only its ledgers   deleted
                                                   and locks deleted
    disableHealthCheck                             kept               deleted
    anything else                                  kept               refused

Source: BookKeeper's ZKRegistrationManager (initNewCluster, format, nukeExistingCluster),
AbstractZkLedgerManagerFactory; tests/golden/bookkeeper/zk/formatted.json.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from quire.metadata import paths
from quire.metadata.bookies import READONLY
from quire.metadata.errors import ClusterRefusedError, NodeExistsError, NoNodeError, NotEmptyError
from quire.metadata.layouts import HIERARCHICAL, LedgerLayout, is_ledger_node
from quire.metadata.ledgers import Random, new_instance_id, read_instance_id
from quire.metadata.store import Create, Delete, MetadataStore, Op

DELETES_AT_ONCE = 500
"""Nodes deleted in one write when trees are deleted."""

_FORMATTED = ("cookies", "idgen", "idgen-long")
_KNOWN = (*_FORMATTED, "LAYOUT", "INSTANCEID", "available", "underreplication", "disableHealthCheck")
_FORMATTED_BELOW = (
    "underreplication/ledgers",
    "underreplication/locks",
    "underreplication/unacked",
    "underreplication/sessions",
)


def plan_new_cluster(root: str, instance_id: str, layout: LedgerLayout = HIERARCHICAL) -> list[Op]:
    """Return the ops that create a cluster, in one write (pure). The root's parent must exist."""
    return [
        Create(path=root),
        Create(path=paths.join(root, "available")),
        Create(path=paths.join(root, "available/readonly")),
        Create(path=paths.join(root, "INSTANCEID"), value=instance_id.encode()),
        Create(path=paths.join(root, "LAYOUT"), value=layout.value),
    ]


def plan_format(root: str, names: Iterable[str]) -> list[str]:
    """Return the trees that a format deletes, among the children of a root (pure)."""
    doomed = [name for name in names if name in _FORMATTED or is_ledger_node(name)]
    return [paths.join(root, name) for name in (*doomed, *_FORMATTED_BELOW)]


def unknown_children(names: Iterable[str]) -> list[str]:
    """Return the children of a root that no cluster has: they belong to something else (pure)."""
    return [name for name in names if name not in _KNOWN and not is_ledger_node(name)]


async def exists(store: MetadataStore, root: str) -> bool:
    return await store.get(root) is not None


async def init_new_cluster(store: MetadataStore, root: str, *, rng: Random, layout: LedgerLayout = HIERARCHICAL) -> str:
    """Create a cluster; return its instance id.

    ClusterRefusedError if the root exists, NoNodeError if its parent does not.
    """
    instance_id = new_instance_id(rng)
    try:
        await store.multi(plan_new_cluster(root, instance_id, layout))
    except NodeExistsError as error:
        raise ClusterRefusedError(f"there is a cluster at {root} already") from error
    except NoNodeError as error:
        raise NoNodeError(f"{root} cannot be made: its parent {paths.parent(root)} does not exist") from error
    return instance_id


async def format_cluster(store: MetadataStore, root: str, *, rng: Random, layout: LedgerLayout = HIERARCHICAL) -> str:
    """Delete every ledger and cookie of a cluster, or create the cluster; return the new instance id.

    Running bookies are not checked for. After an interruption, repeat it; the new instance id is written last.
    """
    instance_id = new_instance_id(rng)
    if not await exists(store, root):
        await store.create(root, make_parents=True)
    for name in ("available", "available/readonly"):
        try:
            await store.create(paths.join(root, name))
        except NodeExistsError:
            continue
    for path in plan_format(root, await store.children(root)):
        await delete_tree(store, path)
    ops: list[Op] = []
    for name, value in (("LAYOUT", layout.value), ("INSTANCEID", instance_id.encode())):
        path = paths.join(root, name)
        node = await store.get(path)
        if node is not None:
            ops.append(Delete(path=path, version=node.version))
        ops.append(Create(path=path, value=value))
    await store.multi(ops)
    return instance_id


async def nuke_cluster(store: MetadataStore, root: str, *, instance_id: str | None = None, force: bool = False) -> None:
    """Delete a cluster's whole tree.

    ClusterRefusedError if `instance_id` is not the cluster's (unless `force`), if bookies are registered, or if there
    are nodes that no cluster has. NoNodeError if there is no cluster.
    """
    if not await exists(store, root):
        raise NoNodeError(f"there is no cluster at {root}")
    if not force:
        found = await read_instance_id(store, root)
        if instance_id != found:
            raise ClusterRefusedError(f"the cluster at {root} has the instance id {found}, not {instance_id}")
    registered = [name for name in await _names(store, f"{root}/available") if name != READONLY]
    registered += await _names(store, f"{root}/available/{READONLY}")
    if registered:
        raise ClusterRefusedError(f"the cluster at {root} has bookies running: {', '.join(registered)}")
    strangers = unknown_children(await store.children(root))
    if strangers:
        raise ClusterRefusedError(f"{root} contains nodes that do not belong to a cluster: {', '.join(strangers)}")
    await delete_tree(store, root)


async def delete_tree(store: MetadataStore, path: str) -> None:
    """Delete a node and all nodes below it, bottom up; no effect if it is gone.

    Others may add or delete nodes meanwhile.
    """
    while True:
        nodes = [path]
        for node in nodes:  # grows during the loop: every node after its parent
            try:
                nodes += [paths.join(node, name) for name in await store.children(node)]
            except NoNodeError:
                continue
        try:
            for start in range(0, len(nodes), DELETES_AT_ONCE):
                await _delete(store, nodes[::-1][start : start + DELETES_AT_ONCE])
            return
        except NotEmptyError:
            continue


async def _delete(store: MetadataStore, nodes: Sequence[str]) -> None:
    """Delete nodes in one write, or one by one if some are gone by now."""
    try:
        await store.multi([Delete(path=node) for node in nodes])
    except NoNodeError:
        for node in nodes:
            try:
                await store.delete(node)
            except NoNodeError:
                continue


async def _names(store: MetadataStore, folder: str) -> list[str]:
    """Return the children; none if there is no such node."""
    try:
        return await store.children(folder)
    except NoNodeError:
        return []

"""Reads and writes of a ZooKeeper store, over lost connections and missing parents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kazoo import exceptions

from quire.metadata import paths
from quire.metadata.errors import MetadataUnavailableError, NodeExistsError, NoNodeError
from quire.metadata.store import Create, Delete, Kind, Op
from quire.metadata.zookeeper.calls import LostError
from quire.metadata.zookeeper.requests import Expanded, Requests, ancestors, failed_op, translate
from quire.metadata.zookeeper.session import Session
from quire.service.log import get_logger

log = get_logger(__name__)


class Transactions:
    """Calls of one session and its successors, without time limits: the store sets them."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._requests = session.requests
        self._calls = session.calls
        self._orphans = session.orphans

    async def read(self, request: Any, path: str) -> Any:
        """Ask until there is an answer: reads can be repeated."""
        while True:
            try:
                return await self._calls.ask(request).answer()
            except LostError:
                continue
            except exceptions.KazooException as error:
                raise self._session.translated(error, path) from error

    async def write(self, op: Op) -> Any:
        """Run a single op; return its own answer."""
        request = self._requests.commit((op,), single=True)
        try:
            return await self._calls.ask(request).answer()
        except exceptions.KazooException as error:
            raise self._session.translated(error, op.path) from error

    async def create(self, op: Create) -> str:
        while True:
            try:
                return (await self.commit((op,), True))[0]
            except LostError as error:
                if not op.sequential:
                    if await self._was_made(op, error):
                        return op.path
                elif op.kind is Kind.PERSISTENT:
                    log.warning("a sequential node may be left over", folder=paths.parent(op.path))
                    raise
                # An ephemeral sequential node is created again; the node of the lost answer is searched and deleted.

    async def _was_made(self, op: Create, lost: LostError) -> bool:
        """Return whether a create whose answer was lost created its node.

        NodeExistsError if another client created it, MetadataUnavailableError if that cannot be determined.
        """
        await self.read(self._requests.sync(op.path), op.path)
        try:
            value, stat = await self.read(self._requests.get(op.path), op.path)
        except NoNodeError:
            return False
        if op.kind is Kind.EPHEMERAL and stat.ephemeralOwner == lost.session and stat.czxid > lost.zxid:
            return True
        if stat.czxid <= lost.zxid or stat.ephemeralOwner or op.kind is Kind.EPHEMERAL or (value or b"") != op.value:
            raise NodeExistsError(f"{op.path}: there is a node already")
        raise MetadataUnavailableError(f"{op.path} was created while the connection was lost, by an unknown client")

    async def commit(self, ops: Sequence[Op], single: bool) -> list[str]:
        """Run ops all or nothing; `single` sends one op as itself, unless parents must be created."""
        expanded = Expanded(ops)
        folders = _numbered_folders(ops)
        for op in ops:
            if isinstance(op, Create) and op.kind is Kind.EPHEMERAL and not op.sequential:
                self._orphans.hand_out(op.path)
        while True:
            alone = single and len(expanded.ops) == 1
            request = self._requests.commit(expanded.ops, single=alone)
            try:
                answers = await self._calls.ask(request, self._orphans.answered, folders=folders).answer()
                if alone:
                    answers = [answers]
                failed = failed_op(answers)
            except exceptions.KazooException as error:
                failed = (0, error)
            if failed is None:
                for op in ops:
                    if isinstance(op, Delete):
                        self._orphans.forget(op.path)
                return expanded.results(answers, self._requests)
            position, reason = failed
            path = expanded.may_be_mended(position, reason)
            if path is None:
                index = expanded.index_of[position]
                raise self._session.translated(reason, ops[index].path, index) from reason
            expanded.set_existing(position, await self._existing(ancestors(path)))

    async def _existing(self, above: Sequence[str]) -> dict[str, bool]:
        """Return which of the nodes exist, with simultaneous requests."""
        asked = [(path, self._calls.ask(self._requests.exists(path))) for path in above]
        existing = {}
        for path, call in asked:
            try:
                existing[path] = await call.answer() is not None
            except LostError:
                existing[path] = await self.read(self._requests.exists(path), path) is not None
            except exceptions.KazooException as error:
                raise self._session.translated(error, path) from error
        return existing

    async def make_chroot(self, chroot: str, *, secure: bool) -> None:
        """Create the node that all paths are below, and those above it; no effect if they exist."""
        whole = Requests(paths.ROOT, secure=secure)
        for path in (*ancestors(chroot), chroot):
            try:
                await self._calls.ask(whole.op(Create(path=path))).answer()
            except exceptions.NodeExistsError:
                continue
            except exceptions.KazooException as error:
                raise translate(error, path) from error


def _numbered_folders(ops: Sequence[Op]) -> tuple[str, ...]:
    """Return the folders in which the ops create ephemeral sequential nodes."""
    found = [op for op in ops if isinstance(op, Create) and op.sequential and op.kind is Kind.EPHEMERAL]
    return tuple({paths.parent(op.path): None for op in found})

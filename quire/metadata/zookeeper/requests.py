"""Conversion of the store's calls to ZooKeeper requests, and of its answers and errors to ours (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kazoo import exceptions
from kazoo.protocol import serialization
from kazoo.protocol.states import ZnodeStat
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from quire.metadata import paths
from quire.metadata.errors import (
    BadVersionError,
    InvalidPathError,
    MetadataError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
    NotAllowedError,
    NotEmptyError,
    SessionExpiredError,
    ValueTooLargeError,
)
from quire.metadata.store import Check, Create, Delete, Kind, Op, Put

OPEN = tuple(OPEN_ACL_UNSAFE)
SECURE = (*CREATOR_ALL_ACL, *READ_ACL_UNSAFE)
"""zkEnableSecurity: all rights for the creator, read for the world. Source: BookKeeper's ZkUtils.getACLs."""

NUMBER_WIDTH = 10
"""Digits that the server appends to a sequential name."""

_EPHEMERAL, _SEQUENTIAL = 1, 2
_REQUEST_HEAD = 8
_OP_OVERHEAD = 128
"""Upper bound on lengths, header, version, flags and rights of one op."""

_ERRORS: tuple[tuple[type[Exception], type[MetadataError], str], ...] = (
    (exceptions.NoNodeError, NoNodeError, "the node or its parent does not exist"),
    (exceptions.NodeExistsError, NodeExistsError, "there is a node already"),
    (exceptions.BadVersionError, BadVersionError, "the node has another version"),
    (exceptions.NotEmptyError, NotEmptyError, "the node has children"),
    (exceptions.NoChildrenForEphemeralsError, InvalidPathError, "an ephemeral node has no children"),
    (exceptions.BadArgumentsError, InvalidPathError, "the server refuses the path"),
    (exceptions.NoAuthError, NotAllowedError, "these credentials lack the right"),
    (exceptions.InvalidACLError, NotAllowedError, "the server has no identity of this client to give rights to"),
    (exceptions.AuthFailedError, NotAllowedError, "the server refused the credentials"),
    (exceptions.QuotaExceededError, NotAllowedError, "the quota is used up"),
    (exceptions.SessionExpiredError, SessionExpiredError, "the session has ended"),
)


def translate(error: Exception, what: str, index: int = 0) -> MetadataError:
    """Return our error for a kazoo error. Unknown errors are passing: the outcome is unknown then."""
    if isinstance(error, MetadataError):
        return error
    for theirs, ours, words in _ERRORS:
        if isinstance(error, theirs):
            return ours(f"{what}: {words}", index=index)
    return MetadataUnavailableError(f"{what}: {type(error).__name__} {error}".rstrip(), index=index)


def check_op(op: Op) -> None:
    """Refuse ops that the server would refuse, or interpret in another way. InvalidPathError, NodeExistsError."""
    if isinstance(op, Create):
        paths.check(f"{op.path}0" if op.sequential else op.path)
        if op.path == paths.ROOT and not op.sequential:
            raise NodeExistsError("there is a node / already")
        return
    paths.check(op.path)
    if isinstance(op, Delete) and op.path == paths.ROOT:
        raise InvalidPathError("the root cannot be deleted")


class Requests:
    """Builder of requests for one chroot and one set of rights."""

    def __init__(self, chroot: str, *, secure: bool = False, max_bytes: int = 0xFFFFF) -> None:
        self._prefix = "" if chroot == paths.ROOT else chroot
        self._acl = SECURE if secure else OPEN
        self._max_bytes = max_bytes

    def full(self, path: str) -> str:
        """Return the path as the server knows it."""
        return path if not self._prefix else self._prefix if path == paths.ROOT else self._prefix + path

    def own(self, full_path: str) -> str:
        """Return the path as our callers know it."""
        return full_path[len(self._prefix) :] or paths.ROOT

    def get(self, path: str) -> Any:
        return serialization.GetData(self.full(path), None)

    def exists(self, path: str, watcher: Any = None) -> Any:
        return serialization.Exists(self.full(path), watcher)

    def children(self, path: str, watcher: Any = None) -> Any:
        return serialization.GetChildren(self.full(path), watcher)

    def sync(self, path: str) -> Any:
        return serialization.Sync(self.full(path))

    def op(self, op: Op) -> Any:
        if isinstance(op, Create):
            flags = (_EPHEMERAL if op.kind is Kind.EPHEMERAL else 0) | (_SEQUENTIAL if op.sequential else 0)
            path = self._prefix + op.path  # not `full`: a sequential path may be a lone slash
            return serialization.Create(path, bytes(op.value), self._acl, flags)
        path = self.full(op.path)
        if isinstance(op, Put):
            return serialization.SetData(path, bytes(op.value), op.version)
        if isinstance(op, Delete):
            return serialization.Delete(path, op.version)
        assert isinstance(op, Check), f"{op!r} is not an op"
        return serialization.CheckVersion(path, op.version)

    def commit(self, ops: Sequence[Op], *, single: bool) -> Any:
        """Return one request for all `ops`; a plain one if `single`. ValueTooLargeError."""
        requests = [self.op(op) for op in ops]
        request = requests[0] if single else serialization.Transaction(requests)
        bound = sum(_OP_OVERHEAD + 4 * len(op.path) + _value_size(op) for op in ops)
        if bound > self._max_bytes:
            size = len(request.serialize()) + _REQUEST_HEAD
            if size > self._max_bytes:
                largest = max(ops, key=_value_size)
                raise ValueTooLargeError(
                    f"a request of {size} bytes is above the server's {self._max_bytes} (jute.maxbuffer);"
                    f" {largest.path} has a value of {_value_size(largest)}"
                )
        return request


def _value_size(op: Op) -> int:
    return len(op.value) if isinstance(op, Create | Put) else 0


def failed_op(results: Sequence[Any]) -> tuple[int, Exception] | None:
    """Return the index and error of the op of a transaction that failed; None if it succeeded.

    Ops before the failed one have RolledBackError, those after it RuntimeInconsistency. Source: ZooKeeper's
    PrepRequestProcessor, multi.
    """
    for index, result in enumerate(results):
        others = (exceptions.RolledBackError, exceptions.RuntimeInconsistency)
        if isinstance(result, Exception) and not isinstance(result, others):
            return index, result
    broken = next((result for result in results if isinstance(result, Exception)), None)
    return None if broken is None else (0, broken)


def ancestors(path: str) -> list[str]:
    """Return every node above `path`, from the top, without the root.

    >>> ancestors("/a/b/c")
    ['/a', '/a/b']
    """
    above = []
    while (path := paths.parent(path)) != paths.ROOT:
        above.append(path)
    return above[::-1]


class Expanded:
    """Ops of a multi, with missing parents inserted before the ops that ask for them."""

    __slots__ = ("_made", "_ops", "index_of", "ops")

    def __init__(self, ops: Sequence[Op]) -> None:
        self._ops = ops
        self._made: list[tuple[str, ...]] = [()] * len(ops)
        self.ops: list[Op] = list(ops)
        self.index_of: list[int] = list(range(len(ops)))
        """For each op to send, the index of the caller's op that it is, or is for."""

    def may_be_mended(self, position: int, error: Exception) -> str | None:
        """Return the path whose parents must be examined again, if the failure at `position` concerns parents."""
        op = self._ops[self.index_of[position]]
        if not (isinstance(op, Create) and op.make_parents):
            return None
        own = position + 1 == len(self.ops) or self.index_of[position + 1] != self.index_of[position]
        wanted = exceptions.NoNodeError if own else (exceptions.NoNodeError, exceptions.NodeExistsError)
        return op.path if isinstance(error, wanted) else None

    def set_existing(self, position: int, existing: Mapping[str, bool]) -> None:
        """Insert the parents that are not `existing` before the op sent at `position`, considering the effects of
        earlier ops.
        """
        index = self.index_of[position]
        there = dict(existing)
        for op in self.ops[: self.index_of.index(index)]:
            if isinstance(op, Create):
                there[op.path] = True
            elif isinstance(op, Delete):
                there[op.path] = False
        self._made[index] = tuple(path for path in ancestors(self._ops[index].path) if not there.get(path, False))
        self.ops.clear()
        self.index_of.clear()
        for number, (made, op) in enumerate(zip(self._made, self._ops, strict=True)):
            self.ops += (*(Create(path=path) for path in made), op)
            self.index_of += [number] * (len(made) + 1)

    def results(self, answers: Iterable[Any], requests: Requests) -> list[str]:
        """Return for each op of the caller the created path or the op's own."""
        results = [""] * len(self._ops)
        for index, answer in zip(self.index_of, answers, strict=True):
            # Parents come before their op, so its own answer is the last one written.
            op = self._ops[index]
            results[index] = requests.own(answer) if isinstance(op, Create) else op.path
        return results


def stat_of(answer: Any) -> ZnodeStat:
    """Return the stat in the answer of SetData and Exists."""
    assert isinstance(answer, ZnodeStat), f"{answer!r} is not a stat"
    return answer

from __future__ import annotations

import pytest
from kazoo import exceptions

from quire.metadata.errors import (
    BadVersionError,
    InvalidPathError,
    MetadataError,
    MetadataUnavailableError,
    NodeExistsError,
    NoNodeError,
    NotAllowedError,
    ValueTooLargeError,
)
from quire.metadata.store import Check, Create, Delete, Kind, Op, Put
from quire.metadata.zookeeper.requests import Expanded, Requests, ancestors, check_op, failed_op, translate


def test_paths_are_put_under_the_chroot_and_taken_out_again() -> None:
    for chroot, path, full in (("/", "/a", "/a"), ("/", "/", "/"), ("/x/y", "/a", "/x/y/a"), ("/x/y", "/", "/x/y")):
        requests = Requests(chroot)
        assert requests.full(path) == requests.get(path).path == full
        assert requests.own(full) == path
    assert Requests("/x").op(Create(path="/", sequential=True)).path == "/x/"


def test_flags_and_rights_of_creates() -> None:
    for kind, sequential, flags in (
        (Kind.PERSISTENT, False, 0),
        (Kind.EPHEMERAL, False, 1),
        (Kind.PERSISTENT, True, 2),
        (Kind.EPHEMERAL, True, 3),
    ):
        assert Requests("/").op(Create(path="/a", kind=kind, sequential=sequential)).flags == flags
    open_to_all = [(right.perms, right.id.scheme) for right in Requests("/").op(Create(path="/a")).acl]
    secure = [(right.perms, right.id.scheme) for right in Requests("/", secure=True).op(Create(path="/a")).acl]
    assert open_to_all == [(31, "world")]
    assert secure == [(31, "auth"), (1, "world")]


def test_the_bound_is_on_the_whole_request() -> None:
    requests = Requests("/", max_bytes=1000)
    size = len(requests.op(Create(path="/a", value=b"")).serialize()) + 8
    requests.commit((Create(path="/a", value=bytes(1000 - size)),), single=True)
    with pytest.raises(ValueTooLargeError, match="/a"):
        requests.commit((Create(path="/a", value=bytes(1001 - size)),), single=True)
    with pytest.raises(ValueTooLargeError, match="/b"):
        requests.commit(
            [Put(path="/a", value=bytes(400), version=0), Put(path="/b", value=bytes(590), version=0)], single=False
        )


@pytest.mark.parametrize(
    ("op", "error"),
    [
        (Create(path="/"), NodeExistsError),
        (Create(path="/a/"), InvalidPathError),
        (Delete(path="/"), InvalidPathError),
        (Put(path="a", value=b"", version=0), InvalidPathError),
        (Check(path="/a//b", version=0), InvalidPathError),
    ],
    ids=str,
)
def test_what_the_server_would_take_in_another_way_is_refused(op: Op, error: type[MetadataError]) -> None:
    with pytest.raises(error):
        check_op(op)


def test_a_sequential_name_may_be_the_number_alone() -> None:
    check_op(Create(path="/", sequential=True))
    check_op(Create(path="/a/", sequential=True))


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (exceptions.NoNodeError(), NoNodeError),
        (exceptions.BadVersionError(), BadVersionError),
        (exceptions.NoChildrenForEphemeralsError(), InvalidPathError),
        (exceptions.NoAuthError(), NotAllowedError),
        (exceptions.OperationTimeoutError(), MetadataUnavailableError),
        (RuntimeError("what?"), MetadataUnavailableError),
        (NotAllowedError("ours"), NotAllowedError),
    ],
    ids=str,
)
def test_errors_are_told_in_our_words(theirs: Exception, ours: type[MetadataError]) -> None:
    assert type(translate(theirs, "/a")) is ours


def test_the_failed_op_is_the_one_that_was_not_rolled_back_with_the_others() -> None:
    rolled_back, after = exceptions.RolledBackError(), exceptions.RuntimeInconsistency()
    failure = exceptions.NoNodeError()
    assert failed_op(["/a", True]) is None
    assert failed_op([rolled_back, rolled_back, failure, after]) == (2, failure)
    assert failed_op([rolled_back, after]) == (0, rolled_back)


def test_ancestors_come_from_the_top() -> None:
    assert ancestors("/a/b/c/d") == ["/a", "/a/b", "/a/b/c"]
    assert ancestors("/a") == []


def paths_of(expanded: Expanded) -> list[str]:
    return [op.path for op in expanded.ops]


def test_missing_parents_are_made_in_front_of_the_op_that_asks_for_them() -> None:
    ops: list[Op] = [Put(path="/p", value=b"", version=0), Create(path="/a/b/c", make_parents=True), Delete(path="/d")]
    expanded = Expanded(ops)
    assert paths_of(expanded) == ["/p", "/a/b/c", "/d"]
    assert expanded.may_be_mended(1, exceptions.NoNodeError()) == "/a/b/c"
    assert expanded.may_be_mended(1, exceptions.NodeExistsError()) is None
    assert expanded.may_be_mended(0, exceptions.NoNodeError()) is None
    expanded.set_existing(1, {"/a": True, "/a/b": False})
    assert paths_of(expanded) == ["/p", "/a/b", "/a/b/c", "/d"]
    assert expanded.index_of == [0, 1, 1, 2]
    # Somebody else was quicker with a parent: it is looked at again.
    assert expanded.may_be_mended(1, exceptions.NodeExistsError()) == "/a/b/c"
    expanded.set_existing(1, {"/a": True, "/a/b": True})
    assert paths_of(expanded) == ["/p", "/a/b/c", "/d"]
    assert expanded.results([object(), "/a/b/c", True], Requests("/")) == ["/p", "/a/b/c", "/d"]


def test_what_earlier_ops_of_the_same_multi_make_or_delete_counts() -> None:
    ops: list[Op] = [
        Create(path="/a"),
        Delete(path="/b"),
        Create(path="/a/x/y", make_parents=True),
        Create(path="/b/z", make_parents=True),
    ]
    expanded = Expanded(ops)
    expanded.set_existing(2, {"/a": False, "/a/x": False})
    assert paths_of(expanded) == ["/a", "/b", "/a/x", "/a/x/y", "/b/z"]
    expanded.set_existing(4, {"/b": True})
    assert paths_of(expanded) == ["/a", "/b", "/a/x", "/a/x/y", "/b", "/b/z"]

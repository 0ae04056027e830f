from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quire.metadata.errors import InvalidPathError, MetadataError, NodeExistsError, NoNodeError
from quire.metadata.local.tree import NOBODY, Tree, Znode, plan
from quire.metadata.store import ANY_VERSION, Check, Create, Delete, Kind, Op, Put
from tests.support.effort import effort
from tests.support.refusals import refuses

SESSION = 3


def do(tree: Tree, *ops: Op, session: int = SESSION) -> list[str]:
    """Plan and apply; return the changes that watches would receive."""
    return tree.apply(plan(tree, ops, session).effects)


@pytest.fixture
def tree() -> Tree:
    return Tree()


def test_planning_touches_nothing(tree: Tree) -> None:
    before = dict(tree.nodes)
    plan(tree, [Create(path="/a"), Put(path="/", value=b"x", version=0)], SESSION)
    assert tree.nodes == before
    assert tree.children("/") == []


def test_the_changed_paths_are_the_nodes_and_the_lists_that_changed(tree: Tree) -> None:
    assert sorted(do(tree, Create(path="/a/b", make_parents=True))) == ["/", "/a", "/a/b"]
    assert do(tree, Put(path="/a/b", value=b"", version=0)) == ["/a/b"]
    assert do(tree, Check(path="/a/b", version=1)) == []
    assert sorted(do(tree, Delete(path="/a/b"))) == ["/a", "/a/b"]


def test_what_must_be_written_are_persistent_nodes_and_counters_that_gave_numbers(tree: Tree) -> None:
    do(tree, Create(path="/p"), Create(path="/e", kind=Kind.EPHEMERAL))

    def kept(*ops: Op) -> list[str]:
        return list(plan(tree, ops, SESSION).kept)

    assert kept(Create(path="/p/x")) == ["/p/x"]
    assert kept(Create(path="/p/x", kind=Kind.EPHEMERAL)) == []
    assert kept(Create(path="/p/x-", sequential=True, kind=Kind.EPHEMERAL)) == ["/p"]
    assert kept(Create(path="/p/x-", sequential=True)) == ["/p", "/p/x-0000000000"]
    assert kept(Put(path="/e", value=b"", version=ANY_VERSION), Delete(path="/e")) == []
    assert kept(Delete(path="/p"), Create(path="/p", kind=Kind.EPHEMERAL)) == ["/p"]
    assert kept(Put(path="/p", value=b"", version=0), Check(path="/p", version=1)) == ["/p"]


def test_a_counter_never_goes_back_while_the_parent_lives(tree: Tree) -> None:
    do(tree, Create(path="/p"))
    for number in range(3):
        do(tree, Create(path="/p/n-", sequential=True))
        assert tree.children("/p") == [f"n-{number:010d}"]
        do(tree, Delete(path=f"/p/n-{number:010d}"))
    do(tree, Put(path="/p", value=b"x", version=0))
    do(tree, Create(path="/p/n-", sequential=True))
    assert tree.children("/p") == ["n-0000000003"]


def test_ephemeral_nodes_are_known_by_their_session(tree: Tree) -> None:
    do(tree, Create(path="/a", kind=Kind.EPHEMERAL), Create(path="/b", kind=Kind.EPHEMERAL), session=1)
    do(tree, Create(path="/c", kind=Kind.EPHEMERAL), session=2)
    assert tree.ephemerals(1) == ["/a", "/b"]
    do(tree, Delete(path="/a"), Create(path="/a", kind=Kind.EPHEMERAL), session=2)
    assert tree.ephemerals(1) == ["/b"]
    assert tree.ephemerals(2) == ["/c", "/a"]
    do(tree, Delete(path="/b"), session=2)
    assert tree.ephemerals(1) == []


def test_a_multi_sees_its_own_earlier_ops(tree: Tree) -> None:
    do(tree, Create(path="/a"), Create(path="/a/b"), Put(path="/a/b", value=b"x", version=0), Delete(path="/a/b"))
    assert tree.nodes["/a"] == Znode(b"", 0, NOBODY, 1)
    with pytest.raises(NoNodeError) as caught:
        do(tree, Delete(path="/a"), Create(path="/a/c"))
    assert caught.value.index == 1
    refuses(NodeExistsError, lambda: do(tree, Create(path="/z"), Create(path="/z")))
    refuses(InvalidPathError, lambda: do(tree, Create(path="/e", kind=Kind.EPHEMERAL), Create(path="/e/x")))


NAMES = st.sampled_from(["/a", "/b", "/a/x", "/a/y", "/a/x/z"])
VERSIONS = st.sampled_from([ANY_VERSION, 0, 1])
OPS: Any = st.one_of(
    st.builds(
        Create,
        path=NAMES,
        value=st.binary(max_size=1),
        kind=st.sampled_from(Kind),
        sequential=st.booleans(),
        make_parents=st.booleans(),
    ),
    st.builds(Put, path=NAMES, value=st.binary(max_size=1), version=VERSIONS),
    st.builds(Delete, path=NAMES, version=VERSIONS),
    st.builds(Check, path=NAMES, version=VERSIONS),
)


@settings(max_examples=effort(quick=50, full=150), deadline=None)
@given(st.lists(st.lists(OPS, min_size=1, max_size=5), max_size=6))
def test_a_multi_does_what_its_ops_do_one_by_one_or_nothing(multis: list[list[Op]]) -> None:
    together, apart = Tree(), Tree()
    for ops in multis:
        before = dict(apart.nodes)
        failed = None
        for index, op in enumerate(ops):
            try:
                do(apart, op)
            except MetadataError as error:
                failed = (type(error), index)
                break
        if failed is None:
            do(together, *ops)
        else:
            with pytest.raises(failed[0]) as caught:
                do(together, *ops)
            assert caught.value.index == failed[1]
            apart = rebuilt(before)
        assert together.nodes == apart.nodes
        assert_consistent(together)


def rebuilt(nodes: dict[str, Znode]) -> Tree:
    tree = Tree()
    tree.apply(nodes)
    return tree


def assert_consistent(tree: Tree) -> None:
    for path, node in tree.nodes.items():
        names = tree.children(path)
        assert tree.child_count(path) == len(names) <= node.counter
        assert all(f"{path.rstrip('/')}/{name}" in tree.nodes for name in names)
    owned = [path for path, node in tree.nodes.items() if node.owner == SESSION]
    assert sorted(tree.ephemerals(SESSION)) == sorted(owned)

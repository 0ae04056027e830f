"""tools.demo.files"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tools.demo.files import (
    Line,
    Rebuilder,
    Tree,
    count_lines,
    differences,
    is_binary,
    key_of,
    lines_of,
    path_of,
    scan,
    walk,
    write,
)

paths = st.lists(
    st.binary(min_size=1, max_size=12).filter(lambda name: not set(name) & set(b"/\0") and name not in (b".", b"..")),
    min_size=1,
    max_size=3,
).map(b"/".join)


@given(paths)
def test_a_key_turns_back_into_its_path_whatever_the_bytes(path: bytes) -> None:
    key = key_of(path)
    key.encode("utf-8")
    assert path_of(key) == path


def test_a_plain_path_is_its_own_key() -> None:
    assert key_of("docs/glossär.md".encode()) == "docs/glossär.md"


@given(st.binary(max_size=60), st.integers(min_value=1, max_value=7))
def test_the_lines_of_a_file_end_to_end_are_the_file(content: bytes, piece_max: int) -> None:
    lines = list(lines_of("k", content, piece_max))
    assert b"".join(line.payload for line in lines) == content
    assert [line.number for line in lines] == (list(range(1, len(lines) + 1)) if content else [0])
    assert all(len(line.payload) <= piece_max for line in lines)


@pytest.mark.parametrize(
    ("content", "payloads"),
    [
        (b"a\nb\n", [b"a\n", b"b\n"]),
        (b"a\r\nb", [b"a\r\n", b"b"]),
        (b"\n\n", [b"\n", b"\n"]),
        (b"\r", [b"\r"]),
        (b"\xff\xfe\n", [b"\xff\xfe\n"]),
        (b"", [b""]),
    ],
)
def test_a_line_keeps_its_end(content: bytes, payloads: list[bytes]) -> None:
    assert [line.payload for line in lines_of("k", content)] == payloads
    assert count_lines(content) == len(payloads)


def test_binary_means_a_nul_byte() -> None:
    assert is_binary(b"a\0b")
    assert not is_binary(b"\xff\x01")


def make_tree(root: Path) -> bytes:
    (root / "sub").mkdir(parents=True)
    (root / "a.txt").write_bytes(b"one\ntwo")
    (root / "empty").write_bytes(b"")
    (root / "sub" / "image").write_bytes(b"\x89PNG\0")
    (root / "link").symlink_to("a.txt")
    (root / "folder-link").symlink_to("sub")
    os.mkfifo(root / "pipe")
    Path(os.fsdecode(os.fsencode(root) + b"/odd\xff name%")).write_bytes(b"odd\n")
    return os.fsencode(root)


def test_binaries_links_and_others_are_counted_and_left_out(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "tree")
    tree = scan(root, [*walk(root), b"gone"])
    assert tree == Tree({"a.txt": b"one\ntwo", "empty": b"", "odd%FF name%25": b"odd\n"}, binary=1, links=2, other=2)


def deliver_all(rebuilder: Rebuilder, tree: Tree) -> None:
    for key, content in tree.files.items():
        for line in lines_of(key, content):
            rebuilder.deliver(key, line.number)
            rebuilder.acknowledge(*line)


def test_a_tree_that_came_back_has_no_differences(tmp_path: Path) -> None:
    root = make_tree(tmp_path / "tree")
    tree = scan(root, walk(root))
    rebuilder = Rebuilder.of(tree)
    assert not rebuilder.complete
    deliver_all(rebuilder, tree)
    assert rebuilder.complete
    assert (rebuilder.repeated, rebuilder.out_of_order, rebuilder.strange) == (0, [], [])
    rebuilt = os.fsencode(tmp_path / "rebuilt")
    os.mkdir(rebuilt)
    write(rebuilt, rebuilder)
    assert differences(tree, rebuilt, walk(rebuilt)) == []


def test_every_kind_of_difference_is_told(tmp_path: Path) -> None:
    root = os.fsencode(tmp_path)
    (tmp_path / "changed").write_bytes(b"abX")
    (tmp_path / "short").write_bytes(b"ab")
    (tmp_path / "more").write_bytes(b"")
    tree = Tree({"changed": b"abc", "short": b"abc", "lost": b""})
    assert differences(tree, root, walk(root)) == [
        "changed: differs from byte 2 on (3 bytes published, 3 came back)",
        "short: differs from byte 2 on (3 bytes published, 2 came back)",
        "lost: missing",
        "more: was never published",
    ]


def test_repeated_deliveries_count_once_and_keep_the_order() -> None:
    tree = Tree({"k": b"1\n2\n3\n"})
    rebuilder = Rebuilder.of(tree)
    for number in (1, 2, 1, 2, 3):
        rebuilder.deliver("k", number)
        rebuilder.acknowledge("k", number, b"%d\n" % number)
    assert (rebuilder.repeated, rebuilder.out_of_order, rebuilder.acknowledged) == (2, [], 3)
    assert rebuilder.file("k") == b"1\n2\n3\n"


def test_a_first_delivery_that_skips_a_line_is_out_of_order() -> None:
    rebuilder = Rebuilder.of(Tree({"k": b"1\n2\n3\n"}))
    for number in (1, 3, 2):
        rebuilder.deliver("k", number)
    assert rebuilder.out_of_order == ["k: line 3 came after line 1"]


def test_the_first_line_must_come_first() -> None:
    rebuilder = Rebuilder.of(Tree({"k": b"1\n2\n"}))
    rebuilder.deliver("k", 2)
    assert rebuilder.out_of_order == ["k: line 2 came after line 0"]


def test_only_what_was_acknowledged_is_rebuilt() -> None:
    rebuilder = Rebuilder.of(Tree({"k": b"1\n2\n"}))
    rebuilder.deliver("k", 1)
    rebuilder.acknowledge("k", 1, b"1\n")
    rebuilder.deliver("k", 2)
    assert rebuilder.file("k") == b"1\n"
    assert not rebuilder.complete


def test_a_key_that_was_never_published_is_told() -> None:
    rebuilder = Rebuilder.of(Tree({"k": b""}))
    assert not rebuilder.deliver("other", 1)
    assert rebuilder.strange == ["other"]


def test_an_empty_file_is_one_message() -> None:
    assert list(lines_of("k", b"")) == [Line("k", 0, b"")]
    rebuilder = Rebuilder.of(Tree({"k": b""}))
    assert rebuilder.deliver("k", 0)
    rebuilder.acknowledge("k", 0, b"")
    assert rebuilder.complete
    assert rebuilder.out_of_order == []

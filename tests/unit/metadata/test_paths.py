from __future__ import annotations

import pytest

from quire.metadata import paths
from quire.metadata.errors import InvalidPathError
from tests.support.refusals import refuses


@pytest.mark.parametrize("path", ["/", "/a", "/a/b.c/...", "/.a", "/a./..b", "/ ", "/é/名", "/\U0001f600", "/%2F"])
def test_a_path_of_whole_components_is_taken(path: str) -> None:
    assert paths.check(path) == path


@pytest.mark.parametrize("path", ["", "a", "//", "/a/", "/a//b", "/.", "/..", "/a/./b", "/a/.."])
def test_a_path_without_whole_components_is_refused(path: str) -> None:
    refuses(InvalidPathError, lambda: paths.check(path))


@pytest.mark.parametrize("character", "\0\n\x7f\x9f\ud800\uf000\ufff0\uffff", ids=ascii)
def test_a_character_that_zookeeper_refuses_is_refused(character: str) -> None:
    refuses(InvalidPathError, lambda: paths.check(f"/a{character}"))


def test_parent_name_and_join_take_a_path_apart_and_together() -> None:
    for path, folder, name in [("/a", "/", "a"), ("/a/b", "/a", "b"), ("/a/b/c", "/a/b", "c")]:
        assert paths.parent(path) == folder
        assert paths.name(path) == name
        assert paths.join(folder, name) == path
    assert paths.parent("/") == "/"
    assert paths.name("/") == ""

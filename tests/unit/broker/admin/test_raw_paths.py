"""broker.admin.raw_paths"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.admin.errors import InvalidNameInPathError
from broker.admin.raw_paths import PathPattern, raw_path, unescape
from quire.wire.pulsar.names import encode_name

PATTERN = PathPattern("/t/{topic}/subscription/{subscription}")


def test_an_escaped_slash_stays_inside_its_part() -> None:
    parts = PATTERN.match("/t/a%2Fb/subscription/c%2fd")
    assert parts is not None
    assert (unescape(parts["topic"]), unescape(parts["subscription"])) == ("a/b", "c/d")


@pytest.mark.parametrize(
    "path",
    [
        "/t/a/b/subscription/c",
        "/t//subscription/c",
        "/t/a/subscription/",
        "/t/a/subscription/c/",
        "/t/a/subscription/c/d",
        "x/t/a/subscription/c",
    ],
)
def test_another_shape_of_path_does_not_match(path: str) -> None:
    assert PATTERN.match(path) is None


def test_a_dot_of_a_pattern_is_a_dot() -> None:
    assert PathPattern("/status.html").match("/statusxhtml") is None


@pytest.mark.parametrize(
    ("part", "name"), [("%252F", "%2F"), ("a+b", "a b"), ("a%20b", "a b"), ("a%2Bb", "a+b"), ("100%25", "100%")]
)
def test_a_part_is_unescaped_once_as_javas_url_encoder_made_it(part: str, name: str) -> None:
    assert unescape(part) == name


@pytest.mark.parametrize("part", ["%", "%2", "%zz", "a%", "%ff", "%c3%28", b"\xff".decode("latin-1")])
def test_a_part_that_is_no_escaped_utf8_is_refused(part: str) -> None:
    with pytest.raises(InvalidNameInPathError):
        unescape(part)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_what_a_client_escapes_comes_back(name: str) -> None:
    assert unescape(encode_name(name)) == name


def test_names_that_a_client_did_not_escape_are_utf8() -> None:
    path = raw_path({"raw_path": "/t/größe".encode(), "path": "/never/asked"})
    assert unescape(path.removeprefix("/t/")) == "größe"


def test_a_server_that_hands_out_no_raw_path_is_served_by_the_other() -> None:
    assert raw_path({"path": "/t/a b"}) == "/t/a%20b"

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.wire.pulsar.errors import InvalidNameError, InvalidSubscriptionNameError, InvalidTopicNameError
from quire.wire.pulsar.names import (
    NAME_SIZE_MAX,
    NamespaceName,
    TopicName,
    check_subscription_name,
    decode_name,
    encode_name,
)


@pytest.mark.parametrize(
    ("text", "full"),
    [
        ("foo", "persistent://public/default/foo"),
        ("a/b/c", "persistent://a/b/c"),
        ("persistent://a/b/c", "persistent://a/b/c"),
        ("non-persistent://a/b/c", "non-persistent://a/b/c"),
        ("persistent://a/b/c/d", "persistent://a/b/c/d"),
        ("persistent://a-1/b_=:.x/größe & mehr", "persistent://a-1/b_=:.x/größe & mehr"),
        ("...", "persistent://public/default/..."),
        ("100%", "persistent://public/default/100%"),
    ],
)
def test_a_name_has_one_full_form(text: str, full: str) -> None:
    name = TopicName.parse(text)
    assert name.full == full == str(name)
    assert TopicName.parse(full) == name


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "/",
        "a/b",
        "a/b/c/d",
        "a//c",
        "//c",
        "a/b/",
        ".",
        "..",
        "a/b/..",
        "../b/c",
        "a/../c",
        "persistent://",
        "persistent://a",
        "persistent://a/b",
        "persistent://a/b/",
        "persistent://a/b/c/",
        "persistent://a/b//c",
        "persistent://a/b/../../x",
        "persistent://a/b/c/..",
        "persistent://a/b/./c",
        "persistent:///b/c",
        "persistent://a b/c/d",
        "persistent://ä/b/c",
        "http://a/b/c",
        "://a/b/c",
        "PERSISTENT://a/b/c",
        "nul\0",
        "tab\t",
        "line\n",
        "del\x7f",
        "c1\x9b",
        "separator\u2028",
        "half\ud800",
        "back\\slash",
        "x%2Fy",
        "x%2fy",
        "x%00",
        "x%252Fy",
        "x%2e%2e",
        "x%5Cy",
        "x" * (NAME_SIZE_MAX + 1),
        "x" * 65536,
        "ß" * (NAME_SIZE_MAX // 2 + 1),
        b"\xff\xfe",
    ],
)
def test_bad_names_are_refused(text: str) -> None:
    with pytest.raises(InvalidTopicNameError) as caught:
        TopicName.parse(text)
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 1500


def test_the_longest_name_is_accepted() -> None:
    assert TopicName.parse("x" * NAME_SIZE_MAX).local == "x" * NAME_SIZE_MAX


@pytest.mark.parametrize(
    ("local", "partition"),
    [
        ("t-partition-0", 0),
        ("t-partition-12", 12),
        ("t-partition-3-partition-4", 4),
        ("t", -1),
        ("t-partition-", -1),
        ("t-partition-01", -1),
        ("t-partition-x", -1),
        ("t-partition--1", -1),
        ("t-partition-9999999999", -1),
        ("t-partition-٣", -1),
        ("t-partition-1/x", -1),
        ("-partition-1", -1),
    ],
)
def test_a_partition_is_known_by_the_end_of_its_name(local: str, partition: int) -> None:
    name = TopicName.parse(f"persistent://a/b/{local}")
    assert name.partition == partition
    if partition >= 0:
        assert name.partitioned.with_partition(partition) == name
    else:
        assert name.partitioned is name


def test_paths_are_those_of_javas_url_encoder() -> None:
    assert encode_name("aZ09.-*_ +~/%:ß") == "aZ09.-*_+%2B%7E%2F%25%3A%C3%9F"
    name = TopicName.parse("non-persistent://t/n/a/b c")
    assert name.managed_ledger_path == "t/n/non-persistent/a%2Fb+c"
    assert name.namespace_path == "t/n" == str(name.namespace_name)


entities = st.text("abzAZ09_-=:.", min_size=1, max_size=8).filter(lambda text: text not in (".", ".."))
anything = st.text(st.one_of(st.characters(), st.sampled_from("./%\\ +~-partition0123")), max_size=30)


@given(st.one_of(anything, st.builds("persistent://{}/{}/{}".format, entities, entities, anything)))
def test_every_name_is_refused_or_makes_the_way_through_its_path_and_back(text: str) -> None:
    try:
        name = TopicName.parse(text)
    except InvalidTopicNameError:
        return
    path = name.managed_ledger_path
    parts = path.split("/")
    assert len(parts) == 4
    assert all(part not in ("", ".", "..") and part.isascii() and part.isprintable() for part in parts)
    assert TopicName.from_managed_ledger_path(path) == name
    assert TopicName.parse(name.full) == name


@given(anything, anything)
def test_two_names_never_share_a_path(one: str, other: str) -> None:
    assert (
        encode_name(one.encode(errors="replace").decode()) == encode_name(other.encode(errors="replace").decode())
    ) == (one.encode(errors="replace") == other.encode(errors="replace"))


@pytest.mark.parametrize(
    "path",
    [
        "",
        "a/b/c",
        "a/b/persistent/..",
        "a/b/persistent/",
        "a/b/persistent/x/y",
        "a/b/other/x",
        "a/b/persistent/%2e",
        "a/b/persistent/x%20y",
        "a/b/persistent/%ff",
    ],
)
def test_what_is_no_path_of_a_topic_is_refused(path: str) -> None:
    with pytest.raises(InvalidTopicNameError):
        TopicName.from_managed_ledger_path(path)


@pytest.mark.parametrize("text", ["a", "a/b/c", "/b", "a/", "a/..", "a/b%2F", "ä/b", "a/b\0", "a\n/b", b"\xff/\xff"])
def test_bad_namespaces_are_refused(text: str) -> None:
    with pytest.raises(InvalidTopicNameError):
        NamespaceName.parse(text)


@given(entities, entities)
def test_namespaces_make_the_way_there_and_back(tenant: str, namespace: str) -> None:
    assert NamespaceName.parse(str(NamespaceName(tenant, namespace))) == NamespaceName(tenant, namespace)


@pytest.mark.parametrize(
    "name", ["", "  ", ".", "..", "a\0", "a\nb", "\x9b", "\ud800", "x" * (NAME_SIZE_MAX + 1), b"\xff"]
)
def test_bad_subscription_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidSubscriptionNameError):
        check_subscription_name(name)


@given(anything)
def test_every_subscription_name_is_refused_or_one_safe_part_of_a_path(text: str) -> None:
    try:
        name = check_subscription_name(text)
    except InvalidNameError:
        return
    component = encode_name(name)
    assert component not in ("", ".", "..")
    assert "/" not in component
    assert component.isascii()
    assert decode_name(component) == name


def test_subscriptions_may_have_slashes_and_percent_signs() -> None:
    assert encode_name(check_subscription_name("a/b%2F")) == "a%2Fb%252F"

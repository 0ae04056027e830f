from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.wire.pulsar.errors import InvalidNameError, InvalidTopicNameError
from quire.wire.pulsar.names import (
    NAME_SIZE_MAX,
    NamespaceName,
    TopicName,
    check_subscription_name,
    decode_name,
    encode_name,
)
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "names.txt"))
def test_names(dialogue: Dialogue) -> None:
    """Names are written with Python's escapes."""

    def answer(step: Line) -> str:
        text = re.sub(
            r"\\(x..|u....|[0nt\\])",
            lambda found: found[0].encode().decode("unicode_escape"),
            step.word() if step.words else "",
        )
        match step.name:
            case "topic":
                name = TopicName.parse(text)
                assert name.full == str(name)
                return name.full
            case "partition":
                name = TopicName.parse(f"persistent://a/b/{text}")
                if name.partition >= 0:
                    assert name.partitioned.with_partition(name.partition) == name
                else:
                    assert name.partitioned is name
                return str(name.partition)
            case "path":
                return TopicName.from_managed_ledger_path(text).full
            case "namespace":
                return str(NamespaceName.parse(text))
            case "subscription":
                return check_subscription_name(text)
        raise step.unknown()

    refused: list[str] = []

    def kept(step: Line) -> str:
        try:
            return answer(step)
        except InvalidNameError as error:
            refused.append(str(error))
            raise

    dialogue.check(kept, InvalidNameError)
    assert all(each.isascii() for each in refused)


@pytest.mark.parametrize("read", [TopicName.parse, check_subscription_name])
@pytest.mark.parametrize(
    "name", ["x" * (NAME_SIZE_MAX + 1), "x" * 65536, "ß" * (NAME_SIZE_MAX // 2 + 1), b"\xff\xfe", b"\xff/\xff"]
)
def test_a_name_that_is_too_long_or_no_text_is_refused_in_few_words(read: Callable[[Any], object], name: Any) -> None:
    with pytest.raises(InvalidNameError) as caught:
        read(name)
    assert str(caught.value).isascii()
    assert len(str(caught.value)) < 1500


def test_the_longest_name_is_accepted_and_no_namespace_is_bytes() -> None:
    assert TopicName.parse("x" * NAME_SIZE_MAX).local == "x" * NAME_SIZE_MAX
    with pytest.raises(InvalidTopicNameError):
        NamespaceName.parse(cast(Any, b"\xff/\xff"))


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


@given(entities, entities)
def test_namespaces_make_the_way_there_and_back(tenant: str, namespace: str) -> None:
    assert NamespaceName.parse(str(NamespaceName(tenant, namespace))) == NamespaceName(tenant, namespace)


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


def test_names_are_compared_and_sorted_by_their_parts() -> None:
    names = [TopicName.parse(each) for each in ("b", "persistent://a/b/z", "a/c/x", "persistent://a/b/z")]
    assert [each.local for each in names] == ["b", "z", "x", "z"]
    assert (names[1] == names[3], hash(names[1]) == hash(names[3]), names[0] == names[1]) == (True, True, False)
    assert names[1] != str(names[1])
    by_parts = sorted(names, key=lambda each: (each.domain, each.tenant, each.namespace, each.local))
    assert sorted(names) == by_parts

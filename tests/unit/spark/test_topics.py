from __future__ import annotations

import pytest

from quire.spark.topics import TopicsPattern, full_name, partition_index, partition_names, partitioned_name

P = "persistent://public/default/"
LISTED = [f"{P}{local}" for local in ("b-partition-0", "b-partition-1", "a", "ab", "__change_events", "c/d")]


def test_a_short_name_is_made_full() -> None:
    assert full_name(" x ") == f"{P}x"
    assert full_name("t/n/x") == "persistent://t/n/x"


def test_a_topic_without_positions_is_refused() -> None:
    with pytest.raises(ValueError, match="not persistent"):
        full_name("non-persistent://t/n/x")


def test_a_topic_has_the_name_of_each_partition_or_its_own() -> None:
    assert partition_names(f"{P}x", 2) == [f"{P}x-partition-0", f"{P}x-partition-1"]
    assert partition_names(f"{P}x", 0) == [f"{P}x"]


def test_a_partition_tells_its_topic_and_its_number() -> None:
    assert (partitioned_name(f"{P}x-partition-12"), partition_index(f"{P}x-partition-12")) == (f"{P}x", 12)
    assert (partitioned_name(f"{P}x"), partition_index(f"{P}x")) == (f"{P}x", -1)


def test_a_pattern_matches_whole_names_and_each_partitioned_topic_once() -> None:
    assert TopicsPattern.parse("[ab]").topics(LISTED) == [f"{P}a", f"{P}b"]
    assert TopicsPattern.parse("a.?").topics(LISTED) == [f"{P}a", f"{P}ab"]


@pytest.mark.parametrize("text", [".*", "public/default/.*", "persistent://public/default/.*"])
def test_the_namespace_of_a_pattern_is_literal_and_public_default_without_one(text: str) -> None:
    assert TopicsPattern.parse(text) == TopicsPattern("public/default", ".*")


def test_a_pattern_is_of_one_namespace() -> None:
    assert not TopicsPattern.parse("t/n/.*").matches(f"{P}a")
    assert TopicsPattern.parse("t/n/.*").matches("persistent://t/n/a")
    assert not TopicsPattern.parse("t/n/.*").matches("non-persistent://t/n/a")


def test_the_brokers_own_topics_match_only_a_pattern_that_begins_like_them() -> None:
    assert f"{P}__change_events" not in TopicsPattern.parse(".*").topics(LISTED)
    assert TopicsPattern.parse("__change.*").topics(LISTED) == [f"{P}__change_events"]


def test_the_pattern_of_a_full_name_may_hold_slashes() -> None:
    assert TopicsPattern.parse("public/default/c/.*").topics(LISTED) == [f"{P}c/d"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("t*/n/x", "not one namespace"),
        ("t/.*/x", "not one namespace"),
        ("t/n/(", "not a regular expression"),
        ("t/n/", "empty"),
        ("", "empty"),
        ("non-persistent://t/n/x", "does not begin"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        TopicsPattern.parse(text)

"""Hashes and patterns of lists of topics."""

from __future__ import annotations

import random
import re
import timeit

import pytest

from broker.connections.topic_lists.hashes import topics_hash
from broker.connections.topic_lists.patterns import topic_pattern
from quire.wire.pulsar.names import TopicName

NAMES = [
    TopicName.parse(text)
    for text in (
        "orders",
        "orders-partition-3",
        "orders-2",
        "lorries",
        "o.r",
        "orr",
        "tenant/name/orders",
        "x/y/é-1",
    )
]


def test_the_hash_is_that_of_the_names_in_order_and_reads_its_lowest_byte_first() -> None:
    # crc32c("123456789") is 0xe3069283, the check value of the algorithm.
    assert topics_hash(["123456789"]) == "839206e3"
    assert topics_hash([]) == "00000000"
    assert topics_hash(["b", "a"]) == topics_hash(["a", "b"]) != topics_hash(["ab"])


def test_names_are_ordered_as_java_orders_them() -> None:
    beyond, private = "\U0001f600", "\ufb01"  # sorted as UTF-16 the first is smaller, as code points the second
    assert topics_hash([private, beyond]) == topics_hash([f"{beyond},{private}"])


@pytest.mark.parametrize(
    "pattern",
    [
        "public/default/orders",
        "public/default/o.*",
        "public/default/.*",
        "public/default/o.r",
        r"public/default/o\.r",
        "public/default/orders-?[0-9]*",
        "^public/default/or+ders$",
        "public/default/order*s",
        "public/default/ordersx?",
        "public/default/[^l].+",
        r"x/y/.-\d",
        r"public/default/\w+",
        ".*",
        "public/default/orders-partition-3",
    ],
)
def test_a_pattern_matches_what_a_regular_expression_matches_of_the_name_without_its_partition(pattern: str) -> None:
    matches = topic_pattern(pattern)
    assert matches is not None
    for name in NAMES:
        text = f"{name.tenant}/{name.namespace}/{name.partitioned.local}"
        assert matches(name) == (re.fullmatch(pattern, text, re.ASCII) is not None), name
    assert any(map(matches, NAMES)) or pattern.endswith("-3")


def test_a_pattern_may_name_the_domain() -> None:
    matches = topic_pattern("persistent://public/default/or.*")
    assert matches is not None
    assert [matches(name) for name in NAMES[:4]] == [True, True, True, False]


@pytest.mark.parametrize(
    "pattern", ["(?=a)", r"(a)\1", "(?<!a)b", "[", "[z-a]", "\\", "a(", "x{1001}", "((.{0,30}){0,30})y"]
)
def test_what_is_not_matched_in_linear_time_is_left_to_the_client(pattern: str) -> None:
    assert topic_pattern(pattern) is None


def test_a_pattern_that_is_no_text_is_left_to_the_client() -> None:
    assert topic_pattern(b"\xff.*") is None


@pytest.mark.parametrize(
    "pattern",
    [
        "(a*)*b",
        "(a|a)*b",
        "(a|aa)+$b",
        "(.*)*(.*)*(.*)*(.*)*x",
        "(?i:(x+x+)+y)",
        ".*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*x",
        "(((a{10}){10}){10})b",
        "((.{0,9}){0,9})y",
        r"\pL*\pL*\pL*\pL*\pL*\pL*\pL*\pL*b",
    ],
)
def test_no_pattern_takes_long(pattern: str) -> None:
    matches = topic_pattern(pattern)
    assert matches is not None
    names = [TopicName.parse("a" * 100 + str(number)) for number in range(1000)]
    assert timeit.timeit(lambda: [matches(name) for name in names], number=1) < 5


@pytest.mark.parametrize("pattern", ["((.{0,30}){0,30})y", "(.*a.{500}){2}", r"(\pL{0,99}.?){0,9}x"])
def test_a_pattern_that_needs_much_memory_is_refused_quickly(pattern: str) -> None:
    assert timeit.timeit(lambda: topic_pattern(pattern), number=1) < 1
    assert topic_pattern(pattern) is None


def test_whatever_the_pattern_it_matches_what_a_regular_expression_does() -> None:
    rng = random.Random(5)
    for _ in range(3000):
        atoms = [rng.choice("ab.") + rng.choice(["", "", "*", "+", "?"]) for _ in range(rng.randrange(8))]
        text = "".join(rng.choice("abc") for _ in range(rng.randrange(10)))
        matches = topic_pattern("p/n/" + "".join(atoms))
        assert matches is not None
        expected = re.fullmatch("".join(atoms), text) is not None
        if text:
            assert matches(TopicName.parse(f"persistent://p/n/{text}")) == expected, (atoms, text)

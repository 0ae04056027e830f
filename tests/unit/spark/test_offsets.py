from __future__ import annotations

import json
import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.spark.errors import OffsetError
from quire.spark.offsets import ID_MAX, Offsets, Place
from tests.support.refusals import refuses

IDS = st.integers(0, ID_MAX)
PLACES = st.builds(Place, IDS, IDS, st.integers(0, 1000))
MAPPINGS = st.dictionaries(st.text(min_size=1, max_size=20), PLACES, max_size=6)


def test_the_json_is_what_a_person_reads() -> None:
    offsets = Offsets({"persistent://t/n/b": Place(12, 40), "persistent://t/n/a": Place(3, 0, 7)})
    assert offsets.text() == '{"v": 1, "p": {"persistent://t/n/a": [3, 0, 7], "persistent://t/n/b": [12, 40]}}'


def test_the_text_is_that_which_spark_makes_of_the_dict() -> None:
    offsets = Offsets({"b": Place(1, 2), "a": Place(3, 4)})
    assert json.dumps(offsets.to_json_dict()) == offsets.text()


@given(MAPPINGS)
def test_equal_offsets_have_equal_text_whatever_the_order_they_were_made_in(mapping: dict[str, Place]) -> None:
    again = Offsets(dict(reversed(mapping.items())))
    assert again.text() == Offsets(mapping).text()
    assert again == Offsets(mapping)
    assert hash(again) == hash(Offsets(mapping))


@given(MAPPINGS)
def test_what_was_written_is_read_back_from_text_and_from_dict(mapping: dict[str, Place]) -> None:
    offsets = Offsets(mapping)
    assert Offsets.from_json(offsets.text()) == offsets
    assert Offsets.from_json(json.loads(offsets.text())) == offsets
    assert Offsets.from_json(offsets.text()).text() == offsets.text()


def test_numbers_of_64_bits_survive() -> None:
    assert Offsets.from_json(Offsets({"a": Place(2**62 + 3, ID_MAX)}).text())["a"] == Place(2**62 + 3, ID_MAX)


def test_a_batch_index_of_zero_is_not_written_so_that_equal_places_have_equal_text() -> None:
    assert Offsets({"a": Place(1, 2, 0)}).text() == Offsets.from_json('{"v":1,"p":{"a":[1,2]}}').text()
    assert Offsets.from_json('{"v":1,"p":{"a":[1,2,0]}}').text() == '{"v": 1, "p": {"a": [1, 2]}}'


def test_what_a_report_adds_beside_the_places_is_no_part_of_them() -> None:
    assert Offsets.from_json({"v": 1, "p": {"a": [1, 2]}, "behind": 7}) == Offsets({"a": Place(1, 2)})


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("{", "no JSON"),
        ("[1]", "another source"),
        ('{"topic": {"0": 23}}', "another source"),
        ('{"v": 2, "p": {}}', "version 2"),
        ('{"v": 1}', "without places"),
        ('{"v": 1, "p": {"a": [1]}}', "offset of a is"),
        ('{"v": 1, "p": {"a": [1, 2, 3, 4]}}', "offset of a is"),
        ('{"v": 1, "p": {"a": [1, -1]}}', "offset of a is"),
        ('{"v": 1, "p": {"a": [true, 1]}}', "offset of a is"),
        ('{"v": 1, "p": {"a": [1.0, 1]}}', "offset of a is"),
        ('{"v": 1, "p": {"a": "1:2"}}', "offset of a is"),
        ('{"v": 1, "p": {"a": [9223372036854775808, 1]}}', "offset of a is"),
    ],
)
def test_an_offset_that_is_not_ours_is_refused_and_shown(value: str, said: str) -> None:
    refuses(OffsetError, lambda: Offsets.from_json(value), re.escape(said))


def test_offsets_do_not_change_when_places_are_put_in() -> None:
    first = Offsets({"a": Place(1, 2)})
    second = first.with_places({"b": Place(3, 4)})
    assert dict(first) == {"a": Place(1, 2)}
    assert dict(second) == {"a": Place(1, 2), "b": Place(3, 4)}


def test_offsets_and_places_pickle() -> None:
    offsets = Offsets({"a": Place(1, 2, 3)})
    assert pickle.loads(pickle.dumps(offsets)) == offsets


@given(PLACES)
def test_a_place_is_read_back_from_its_text(place: Place) -> None:
    assert Place.parse(str(place)) == place


@pytest.mark.parametrize(
    "text", ["", "1", "1:", ":1", "-1:0", "1:2:3:4", "1 : 2", "a:b", "٣:1", "1:9223372036854775808"]
)
def test_what_is_no_place_is_refused(text: str) -> None:
    refuses(ValueError, lambda: Place.parse(text), r"is not ledger:entry|2\^63")


@given(PLACES, PLACES)
def test_places_are_ordered_as_the_log_is(one: Place, other: Place) -> None:
    assert (one < other) == (tuple(one) < tuple(other))

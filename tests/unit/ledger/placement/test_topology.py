from __future__ import annotations

import json

import pytest

from quire.ledger.placement.topology import DEFAULT_REGION_AND_RACK, clean_location, decode_rack_map, region_of
from quire.metadata.errors import MalformedMetadataError


def rack_map(**groups: dict[str, dict[str, str]]) -> bytes:
    return json.dumps(groups).encode()


def test_a_location_has_one_leading_slash_and_none_at_the_end() -> None:
    assert [clean_location(text) for text in ("r", "/r/", " /a//b ", "", "/")] == ["/r", "/r", "/a/b", None, None]


def test_the_region_is_the_first_part() -> None:
    assert [region_of(each) for each in ("/eu/r1", "/r1", DEFAULT_REGION_AND_RACK)] == ["eu", "r1", "default-region"]


def test_racks_of_all_groups_are_found_by_bookie_id() -> None:
    racks = decode_rack_map(rack_map(one={"a:1": {"rack": "/r1"}}, two={"my-bookie": {"rack": "r2", "hostname": ""}}))
    assert (racks.location("a:1"), racks.location("my-bookie"), racks.location("b:1")) == ("/r1", "/r2", None)


def test_a_bookie_is_found_by_its_address_and_then_by_its_host() -> None:
    racks = decode_rack_map(rack_map(one={"h1:3181": {"rack": "/r1"}, "x": {"rack": "/r2", "hostname": "h2"}}))
    assert racks.location("my-id", "h1", 3181) == "/r1"
    assert racks.location("my-id", "h1", 9) == "/r1"
    assert racks.location("my-id", "h2", 9) == "/r2"
    assert racks.location("h2:77") == "/r2", "not registered: by the host in its id"
    assert racks.location("my-id", "h3", 3181) is None


def test_the_name_of_a_bookie_wins_and_a_host_with_bookies_in_two_racks_says_nothing() -> None:
    racks = decode_rack_map(rack_map(one={"h:1": {"rack": "/r1"}, "h:2": {"rack": "/r2"}}))
    assert [racks.location(f"h:{port}", "h", port) for port in (1, 2, 3)] == ["/r1", "/r2", None]
    assert [racks.location(f"id{port}", "h", port) for port in (1, 2, 3)] == ["/r1", "/r2", None]


@pytest.mark.parametrize("rack", [{"rack": ""}, {"rack": "/"}, {"rack": None}, {}])
def test_an_entry_without_a_rack_says_nothing(rack: dict[str, str]) -> None:
    assert decode_rack_map(rack_map(one={"a:1": rack})).location("a:1") is None


@pytest.mark.parametrize("data", [b"", b"{}"])
def test_an_empty_map_is_a_map(data: bytes) -> None:
    assert decode_rack_map(data).location("a:1") is None


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b"7", b'{"g": 1}', b'{"g": {"a": 1}}', b'{"g": {"a": {"rack": 1}}}', b"\xff"]
)
def test_what_is_no_rack_map_is_malformed(data: bytes) -> None:
    with pytest.raises(MalformedMetadataError):
        decode_rack_map(data)

"""Keys select the same partitions as in the official clients."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.client.routing import java_string_hash, key_text, partition_of
from tests.support.refusals import refuses


@pytest.mark.parametrize(
    ("text", "code"),
    [  # String.hashCode() as documented by its formula, known values
        ("", 0),
        ("a", 97),
        ("Aa", 2112),
        ("BB", 2112),
        ("hello", 99162322),
        ("The quick brown fox jumps over the lazy dog", -609428141),
        ("polygenelubricants", -(1 << 31) & 0x7FFF_FFFF),
        ("ä", 228),
        ("€", 8364),
        ("𝄞", 55348 * 31 + 56606),
        ("persistent://a/b/ä€𝄞", -1957013680),
    ],
)
def test_java_string_hash_is_that_of_java(text: str, code: int) -> None:
    assert java_string_hash(text) == code & 0x7FFF_FFFF


@given(st.text(max_size=60))
def test_java_string_hash_follows_its_formula(text: str) -> None:
    raw = text.encode("utf-16-be")
    value = 0
    for at in range(0, len(raw), 2):
        value = (value * 31 + int.from_bytes(raw[at : at + 2], "big")) & 0xFFFF_FFFF
    assert java_string_hash(text) == value & 0x7FFF_FFFF


@pytest.mark.parametrize(
    ("key", "code"),
    [  # Murmur3 x86 32 bits, seed 0, of the published test vectors, without the sign bit
        (b"hello", 0x248BFA47),
        (b"hello, world", 0x149BBB7F),
        (b"The quick brown fox jumps over the lazy dog.", 0xD5C48BFC & 0x7FFF_FFFF),
    ],
)
def test_murmur_is_that_of_its_vectors(key: bytes, code: int) -> None:
    for partitions in (1, 7, 1000, 1 << 31):
        assert partition_of(key, partitions, "Murmur3_32Hash") == code % partitions


@pytest.mark.parametrize(
    ("key", "partition"),
    [  # Partitions, of 64, to which the official Python client 3.13 sent these keys with its default scheme
        ("a", 28),
        ("ab", 54),
        ("abc", 61),
        ("abcd", 34),
        ("abcdefg", 38),
        ("abcdefgh", 14),
        ("abcdefghi", 46),
        ("key-17", 44),
        ("x" * 15, 57),
        ("x" * 16, 32),
        ("x" * 17, 59),
        ("x" * 33, 31),
        ("é", 9),
        ("key-with-a-long-name-0123456789", 35),
    ],
)
def test_boost_hash_sends_a_key_where_the_official_python_client_sends_it(key: str, partition: int) -> None:
    assert partition_of(key, 64, "BoostHash") == partition


@given(
    st.one_of(st.text(), st.binary()),
    st.integers(1, 1000),
    st.sampled_from(["JavaStringHash", "Murmur3_32Hash", "BoostHash"]),
)
def test_every_key_has_a_partition_and_bytes_go_where_their_text_goes(key, partitions: int, scheme) -> None:
    found = partition_of(key, partitions, scheme)
    assert 0 <= found < partitions
    text, encoded = key_text(key)
    assert partition_of(text, partitions, scheme) == found
    assert encoded == (isinstance(key, bytes) and not _is_text(key))


def _is_text(key: bytes) -> bool:
    return key.decode(errors="ignore").encode() == key


def test_what_cannot_be_routed_is_refused() -> None:
    refuses(ValueError, lambda: partition_of("a", 0), "0 partitions")
    refuses(ValueError, lambda: partition_of("a", 2, "BestHash"), "BestHash")

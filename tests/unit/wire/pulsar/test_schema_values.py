"""quire/wire/pulsar/schema_values.py"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.wire.pulsar.schema_values import joined, pair, taken

parts = st.one_of(st.none(), st.binary(max_size=20))


@given(parts, parts)
def test_a_pair_is_taken_apart_as_it_was_joined(key: bytes | None, value: bytes | None) -> None:
    assert pair(joined(key, value)) == (key, value)


@given(parts, parts, st.data())
def test_a_pair_that_is_cut_off_or_too_long_is_refused(key: bytes | None, value: bytes | None, data) -> None:
    whole = joined(key, value)
    for bad in (whole[: data.draw(st.integers(0, len(whole) - 1))], whole + b"x"):
        with pytest.raises(ValueError, match="pair"):
            pair(bad)


def test_what_is_behind_a_part_is_left() -> None:
    assert taken(b"\0\0\0\1kabc") == (b"k", b"abc")
    assert taken(b"\xff\xff\xff\xffabc") == (None, b"abc")

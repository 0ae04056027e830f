"""Bodies with entries of a topic that is being restored."""

from __future__ import annotations

import pytest

from broker.admin.backup.entries import APPENDED_MAX, unpacked
from broker.admin.errors import MalformedRequestError
from tests.support.refusals import refuses

ONE = b"\0\0\0\1c"


def test_a_body_has_entries_with_their_sizes() -> None:
    assert unpacked(b"\0\0\0\2ab" + ONE) == [b"ab", b"c"]
    assert unpacked(ONE * APPENDED_MAX) == [b"c"] * APPENDED_MAX


@pytest.mark.parametrize("body", [b"", b"\0\0\0", b"\0\0\0\0", ONE + b"\0\0\0\2c", ONE * (APPENDED_MAX + 1)])
def test_a_body_that_is_none_or_would_hold_the_loop_is_refused(body: bytes) -> None:
    refuses(MalformedRequestError, lambda: unpacked(body))

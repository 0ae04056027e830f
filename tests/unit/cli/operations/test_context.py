"""Common parts of the operations."""

from __future__ import annotations

import pytest

from quire.cli.operations.context import checked, filled
from quire.metadata.errors import InvalidPathError


def test_a_command_is_filled_for_its_bookie() -> None:
    assert filled("{host} {port} {id} {other}", "h.example:3181") == "h.example 3181 h.example:3181 {other}"
    assert filled("{host}", "named") == "named"


def test_bookies_are_taken_once_and_what_cannot_be_one_is_refused() -> None:
    assert checked(["a:1", "b:2", "a:1"]) == ["a:1", "b:2"]
    with pytest.raises(InvalidPathError):
        checked(["a b"])

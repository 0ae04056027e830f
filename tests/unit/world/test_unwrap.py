"""quire.world.unwrap"""

from __future__ import annotations

from quire.world.unwrap import first_leaf, leaves, reason_of

NESTED = ExceptionGroup("", [ExceptionGroup("", [OSError("gone"), KeyError("k")]), ValueError(), OSError("gone")])


def test_the_leaves_of_nested_groups_come_in_order() -> None:
    assert [type(leaf) for leaf in leaves(NESTED)] == [OSError, KeyError, ValueError, OSError]
    assert type(first_leaf(NESTED)) is OSError


def test_an_error_that_is_no_group_is_its_own_leaf() -> None:
    error = KeyboardInterrupt()
    assert list(leaves(error)) == [error]
    assert first_leaf(error) is error


def test_a_reason_has_each_text_once_and_a_name_where_there_is_no_text() -> None:
    assert reason_of(NESTED) == "gone; 'k'; ValueError()"

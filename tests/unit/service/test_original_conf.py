"""Keys of an original's file that ours has no field for."""

from __future__ import annotations

import pytest

from quire.service.original_conf import Refusal, assignments, is_false, is_true, refusal_of, render_tail, sort_out

REFUSED = {"tls": Refusal(is_true, "put a proxy before it"), "sync": Refusal(is_false, "set it to true")}


def test_lines_that_assign_are_found_with_their_places() -> None:
    text = "# a=1\n b = 2 \n!c=3\nd\n\ne=f=g\nb=\n"
    assert assignments(text) == [(1, "b", "2"), (5, "e", "f=g"), (6, "b", "")]


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("tls", "True", "put a proxy before it"),
        ("tls", "false", None),
        ("tls", "", None),
        ("sync", "false", "set it to true"),
        ("sync", "true", None),
        ("other", "true", None),
    ],
)
def test_a_value_is_refused_only_if_it_asks_for_what_cannot_be_done(name: str, value: str, remedy: str | None) -> None:
    assert refusal_of(REFUSED, name, value) == remedy


@pytest.mark.parametrize(
    ("text", "ours", "without_effect"),
    [
        ("a=1\n#old=x", "a=1\n#old=x", []),
        ("a=1\na=2", "a=1\n", []),
        ("old=1\nold=2", "new=1\n", []),
        ("old=1\nnew=2", "\nnew=2", ["old"]),
        ("idle=1\nb=2", "\nb=2", ["idle"]),
        ("tls=false\ntls=true", "\n", ["tls"]),
    ],
)
def test_keys_without_a_field_are_taken_out_of_the_text_and_older_names_replaced(
    text: str, ours: str, without_effect: list[str]
) -> None:
    ignored = {"idle": "nothing to be tuned"}
    assert sort_out(text, {"old": "new"}, ignored, REFUSED, source="s") == (ours, without_effect, [])


def test_the_end_of_a_file_tells_each_key_once_under_its_reason() -> None:
    ignored = {"a": "one loop", "b": "no cache", "c": "one loop"}
    tail = render_tail({"old": "new"}, ignored, REFUSED, about_ignored="Without effect.", about_refused="Refused.")
    assert tail.split("\n") == [
        "",
        "# Without effect.",
        "#",
        "# one loop:",
        "#     a c",
        "#",
        "# no cache:",
        "#     b",
        "",
        "# Refused.",
        "#",
        "# tls",
        "#     put a proxy before it",
        "#",
        "# sync",
        "#     set it to true",
        "",
        "# Older names: old for new.",
        "",
    ]
    assert assignments(tail) == []

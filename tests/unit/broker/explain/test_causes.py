"""The table of causes, and its copy in the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from string import Formatter

import pytest

from broker.explain.causes import CAUSES, Cause, Explanation

DOCS = Path(__file__).resolve().parents[4] / "docs" / "explain.md"


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def test_codes_are_unique_and_stable_names() -> None:
    codes = [cause.code for cause in CAUSES]
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", code) for code in codes)


def test_the_documentation_has_each_cause_with_its_sentence_and_remedy() -> None:
    lines = [cells(line) for line in DOCS.read_text("utf-8").splitlines() if line.startswith("| `")]
    rows = [row for row in lines if len(row) == 4]
    assert rows == [
        [f"`{cause.code}`", cause.state.value, _plain(cause.sentence), _plain(cause.remedy)] for cause in CAUSES
    ]


def _plain(text: str) -> str:
    return text.replace("!r}", "}")


@pytest.mark.parametrize("cause", CAUSES, ids=lambda cause: cause.code)
def test_an_answer_is_complete(cause: Cause) -> None:
    names = {name for text in cause[2:] for _, name, _, _ in Formatter().parse(str(text)) if name}
    answer = Explanation(subject="x", cause=cause, details=dict.fromkeys(names, 7), since_ms=None)
    found = answer.as_json()
    assert list(found) == ["subject", "state", "cause", "sentence", "since_ms", "remedy", "details"]
    assert found["sentence"]
    assert found["remedy"]
    assert "{" not in f"{found['sentence']}{found['remedy']}"

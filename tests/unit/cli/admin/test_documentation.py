"""docs/admin.md has every verb as it is."""

from __future__ import annotations

from quire.cli.admin.documentation import PAGE, with_verbs


def test_the_page_has_the_current_verbs() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert with_verbs(page) == page, "run python -m quire.cli.admin.documentation"

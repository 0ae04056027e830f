"""README and docs/: each link and picture leads to a file of the repository."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]


def links(page: Path) -> list[str]:
    """Return the paths that the links and pictures of a page lead to, without those of other sites."""
    found = re.findall(r"\]\(([^)#\s]+)(?:#[^)\s]*)?\)", page.read_text("utf-8"))
    return [each for each in found if "://" not in each]


def test_each_link_and_picture_leads_to_a_file() -> None:
    missing = [(page.name, link) for page in PAGES for link in links(page) if not (page.parent / link).exists()]
    assert missing == []
    assert sum(link.endswith(".png") for page in PAGES for link in links(page)) >= 15, "the pictures are found"

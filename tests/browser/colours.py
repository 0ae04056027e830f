"""Signs and words of the console: a page that shows something by a colour shows it by a sign and a word, too (WCAG
1.4.1, which axe does not check)."""

from __future__ import annotations

from typing import Final

from playwright.sync_api import Page

SIGNS: Final = {
    ".badge.good": r"^✓\s*\p{L}",
    ".badge.warn": r"^!\s*\p{L}",
    ".badge.bad": r"^✕\s*\p{L}",
    ".toast.good": r"^✓",
    ".toast.bad": r"^✕",
    ".notice.good": r"\p{L}{3}",
    ".notice.warn": r"^!",
    ".notice.bad": r"^(!|✕)",
    ".meter.high .meter-text": r"^! ",
    ".copy.there": r"^●.*copies",
    ".copy.gone": r"^✕.*missing",
    ".lines > li.warn .badge": r"^!",
    ".lines > li.bad .badge": r"^✕",
    ".slice": r"served by|no owner",
    ".load": r"in.*out",
    ".hbar": r"\p{L}",
}
"""Patterns of the text, or else of the label, of elements whose colour has a meaning, by selector."""

_LOOK: Final = """(signs) => Object.entries(signs).flatMap(([selector, pattern]) =>
  [...document.querySelectorAll(selector)].filter((each) => each.getClientRects().length)
    .filter((each) => {
      const said = each.getAttribute("aria-label") || each.textContent.replace(/\\s+/g, " ").trim();
      return !new RegExp(pattern, "u").test(said);
    })
    .slice(0, 3).map((each) => `${selector}: ${each.outerHTML.slice(0, 200)}`))"""


def told_by_colour_alone(page: Page) -> list[str]:
    """Return the visible elements whose colour says what their signs and words do not."""
    found: list[str] = page.evaluate(_LOOK, SIGNS)
    return found

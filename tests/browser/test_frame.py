"""The frame of the console: files, navigation, theme, shortcuts."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.looking import Look
from tests.support import web

pytestmark = pytest.mark.cluster


def test_a_browser_is_sent_from_the_root_to_the_console(look: Look):
    look.page.goto(f"{look.base}/")
    expect(look.page.locator("main h1")).to_be_visible()
    assert look.page.url.startswith(f"{look.base}/console/#/")


def test_a_program_gets_what_it_got_at_the_root_before(look: Look):
    found = web.get(f"{look.base}/")
    assert (found.status_code, found.json()) == (404, {"reason": "nothing at /"})


def test_the_theme_is_kept_and_the_keyboard_reaches_everything(look: Look):
    look.go("topics")
    page = look.page
    page.keyboard.press("d")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    look.accessible()
    page.keyboard.press("Tab")
    expect(page.locator("#skip")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()
    page.keyboard.press("?")
    expect(page.locator("dialog[open]")).to_contain_text("Keyboard shortcuts")
    look.accessible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog[open]")).to_have_count(0)
    page.keyboard.press("g")
    page.keyboard.press("n")
    expect(page.locator("#nav a[aria-current]")).to_have_text("Namespaces")
    look.narrow()


def test_a_page_that_is_asked_for_comes_although_the_one_before_it_changes_its_query(look: Look) -> None:
    look.go("topics")
    look.page.evaluate(
        "location.hash = '#/brokers'; document.querySelector('.topic-row.head .sort').click()"  # before the event
    )
    expect(look.page.locator("main h1")).to_have_text("Brokers")

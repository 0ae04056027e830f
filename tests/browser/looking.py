"""A page of the console as a test sees it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Error, Locator, Page, Request, expect

from tests.browser.colours import told_by_colour_alone

WAIT_MS = 8_000
"""Deadline of what a page is to show."""
expect.set_options(timeout=WAIT_MS)


class Look:
    """One page, and what has gone wrong on it."""

    def __init__(self, page: Page, base: str, folder: Path | None) -> None:
        self.page = page
        self.base = base
        self.wrong: list[str] = []
        self.expected: list[str] = []
        self._folder = folder
        page.set_default_timeout(WAIT_MS)
        page.on("console", self._said)
        page.on("pageerror", self._failed)
        page.on("request", self._requested)

    def go(self, address: str) -> None:
        """Go to a page, such as `topics`, and wait for its title."""
        self.page.goto(f"{self.base}/console/#/{address}")
        expect(self.page.locator("main h1")).to_be_visible()

    def topic(self, name: str, tab: str = "") -> None:
        """Go to the page of a topic."""
        self.go(f"topic/{quote(name, safe='')}{'/' if tab else ''}{tab}")

    def shows(self, text: str | re.Pattern[str], where: str = "main") -> Locator:
        """Wait until a text is visible."""
        found = self.page.locator(where).get_by_text(text).first
        expect(found).to_be_visible()
        return found

    def button(self, name: str, *, exact: bool = True) -> Locator:
        """Return the button with a name."""
        return self.page.get_by_role("button", name=name, exact=exact)

    def confirm(self, button: str, typed: str | None = None) -> None:
        """Confirm in the open dialog, where `typed` has to be typed first, and wait until it is closed."""
        dialog = self.page.locator("dialog[open]")
        go = dialog.get_by_role("button", name=button, exact=True)
        if typed is not None:
            expect(go).to_be_disabled()
            dialog.locator("input[id$=-typed]").fill(typed)
        go.click()
        expect(dialog).to_have_count(0)

    def accessible(self) -> None:
        """Check the page with axe: WCAG 2.1 A and AA, contrast included; and that colours have signs beside them."""
        options: dict[str, Any] = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
        found = Axe().run(self.page, options=options).response["violations"]
        said = [f"{each['id']}: {each['help']}: {[node['html'][:200] for node in each['nodes']][:3]}" for each in found]
        assert not said, "\n".join(said)
        alone = told_by_colour_alone(self.page)
        assert not alone, "\n".join(alone)

    def narrow(self) -> None:
        """Make the page 390 pixels wide, and check that nothing has to be scrolled sideways."""
        self.page.set_viewport_size({"width": 390, "height": 844})
        wide = self.page.evaluate("document.documentElement.scrollWidth")
        beyond = self.page.evaluate(
            "[...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right > 390)"
            ".slice(0, 5).map(e => e.outerHTML.slice(0, 150))"
        )
        assert wide <= 390, f"{self.page.url} is {wide} pixels wide on a narrow screen: {beyond}"

    def picture(self, name: str, *, full: bool = False) -> None:
        """Write a picture of the page, if pictures are wanted."""
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=str(self._folder / f"{name}.png"), full_page=full, animations="disabled")

    def check(self) -> None:
        """Fail if anything has gone wrong that the test did not expect."""
        found = [each for each in self.wrong if not any(part in each for part in self.expected)]
        assert not found, "\n".join(found)
        for part in self.expected:
            assert any(part in each for each in self.wrong), f"{part!r} did not come"

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"console {message.type}: {message.text} {message.location.get('url', '')}")

    def _failed(self, error: Error) -> None:
        self.wrong.append(f"uncaught: {error}")

    def _requested(self, request: Request) -> None:
        wanted, own = urlsplit(request.url), urlsplit(self.base)
        if (wanted.scheme, wanted.netloc) != (own.scheme, own.netloc):
            self.wrong.append(f"a request leaves the origin: {request.url}")


@contextmanager
def looking_at(browser: Browser, base: str) -> Iterator[Look]:
    """Open a page, 1440 pixels wide and light; at its end, fail on what went wrong on it."""
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, color_scheme="light", reduced_motion="reduce", locale="en-GB"
    )
    folder = os.environ.get("QUIRE_SCREENSHOTS")
    look = Look(context.new_page(), base, None if folder is None else Path(folder))
    try:
        yield look
        look.check()
    finally:
        context.close()

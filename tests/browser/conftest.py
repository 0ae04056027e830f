"""The console in a headless Chromium: one browser and one server for each module, one page for each test.

Each test fails on what its page says to its console, on an uncaught error, and on a request that leaves the origin of
the server. `QUIRE_SCREENSHOTS=folder` writes the pictures that docs/console/ has.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, sync_playwright

from tests.browser.looking import Look
from tests.support.server import StandaloneProcess, standalone

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def executable() -> str:
    """Return the path of the browser of the machine. scripts/debian-packages installs it."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert found is not None, "no Chromium on this machine: run scripts/debian-packages, or apt-get install chromium"
    return found


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=executable(), args=["--no-sandbox", "--disable-gpu"])
        yield launched
        launched.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with standalone(tmp_path_factory.mktemp("console")) as started:
        yield started


@pytest.fixture
def look(browser: Browser, server: StandaloneProcess) -> Iterator[Look]:
    """A page of the console, 1440 pixels wide and light."""
    context: BrowserContext = browser.new_context(
        viewport={"width": 1440, "height": 900}, color_scheme="light", reduced_motion="reduce", locale="en-GB"
    )
    folder = os.environ.get("QUIRE_SCREENSHOTS")
    look = Look(context.new_page(), server.web, None if folder is None else Path(folder))
    try:
        yield look
        look.check()
    finally:
        context.close()

"""The console in a headless Chromium: one browser and one server for each module, one page for each test.

Each test fails on what its page says to its console, on an uncaught error, and on a request that leaves the origin of
the server. `QUIRE_SCREENSHOTS=folder` writes the pictures that docs/console/ has.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Playwright, sync_playwright

from tests.browser.looking import Look, looking_at
from tests.support.server import StandaloneProcess, standalone

CHROMIUM = ("chromium", "chromium-browser", "google-chrome")


def executable() -> str:
    """Return the path of the browser of the machine. scripts/debian-packages installs it."""
    found = next(filter(None, map(shutil.which, CHROMIUM)), None)
    assert found is not None, "no Chromium on this machine: run scripts/debian-packages, or apt-get install chromium"
    return found


def launched(playwright: Playwright, *arguments: str) -> Browser:
    """Start the browser, with more arguments."""
    path = executable()
    return playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", *arguments])


@pytest.fixture(scope="session")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def browser(playwright: Playwright) -> Iterator[Browser]:
    with launched(playwright) as started:
        yield started


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneProcess]:
    with standalone(tmp_path_factory.mktemp("console")) as started:
        yield started


@pytest.fixture
def look(browser: Browser, server: StandaloneProcess) -> Iterator[Look]:
    """A page of the console, 1440 pixels wide and light."""
    with looking_at(browser, server.web) as made:
        yield made

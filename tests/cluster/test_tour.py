"""The tour of docs/tour.md: its commands, as a newcomer types them, within five minutes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support.pages.walk import Walk
from tests.support.server import free_port

pytestmark = pytest.mark.cluster
TOUR_S = 300
"""Time that the tour may take a newcomer; reading is most of it."""
COMMANDS_S = 60
SECTIONS = ("Start", "Make a topic", "Send messages, and see them", "Why does it stand still?")


def test_the_tour(tmp_path: Path) -> None:
    binary, web_port = free_port(), free_port()
    names: dict[str, object] = {
        # (The only difference from a newcomer's machine: ports that no other test has.)
        "quire standalone --data-dir data": f"quire standalone --data-dir data --port {binary} --web-port {web_port}",
        "pulsar://127.0.0.1:6650": f"pulsar://127.0.0.1:{binary}",
        "http://127.0.0.1:8080": f"http://127.0.0.1:{web_port}",
    }
    begun = time.monotonic()
    with Walk(
        "tour.md",
        tmp_path / "tour",
        names,
        web=f"http://127.0.0.1:{web_port}",
        service=f"pulsar://127.0.0.1:{binary}",
    ) as tour:
        for section in SECTIONS:
            tour.section(section)
    assert time.monotonic() - begun < COMMANDS_S
    words = len((Path(__file__).parents[2] / "docs/tour.md").read_text().split())
    assert words / 200 * 60 + COMMANDS_S < TOUR_S, "at 200 words a minute it takes longer than five minutes to read"

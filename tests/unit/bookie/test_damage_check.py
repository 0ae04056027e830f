"""bookie/damage.py: what a look at the folders of a stopped bookie names, on real files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from bookie.config import BookieConfig
from bookie.damage import check_bookie
from quire.metadata.memory import MemoryTree
from quire.world.damage import Finding
from quire.world.real import real_world
from tests.unit.bookie.build import CONFIG, Client, opened


@pytest.fixture
def config(tmp_path: Path) -> BookieConfig:
    """A bookie that was stopped, with entries in its journal's newest file."""
    config = replace(CONFIG, journal_directory=f"{tmp_path}/j", ledger_directory=f"{tmp_path}/l")

    tree = MemoryTree()

    async def main() -> None:
        for first in (0, 10):
            async with opened(real_world(), tree, config) as bookie:
                await Client(bookie).add(7, first, first + 10)

    trio.run(main)
    return config


def findings(config: BookieConfig) -> list[Finding]:
    return check_bookie(real_world().disk, config, real_world().clock.wall_ms)


def test_a_bookie_that_was_stopped_has_no_damage(config):
    assert findings(config) == []


def test_everything_that_is_damaged_is_named(config, tmp_path):
    current = tmp_path / "l/current"
    newest = max((tmp_path / "j/current").glob("*.txn"))
    newest.unlink()
    (current / "forgottenFences").write_bytes(b"x")
    (manifest,) = (current / "ledgers").glob("MANIFEST-*")
    os.truncate(manifest, 100)
    (current / "locations/CURRENT").unlink()
    named = {Path(finding.file).name for finding in findings(config) if finding.loses}
    assert named == {newest.name, "forgottenFences", manifest.name, "CURRENT"}


def test_what_is_mended_by_itself_is_named_and_loses_nothing(config, tmp_path):
    (tmp_path / "l/current/lastMark").write_bytes(b"short")
    (tmp_path / "l/current/locations/quire-synced.a").unlink()
    found = findings(config)
    assert {Path(finding.file).name for finding in found} == {"lastMark", "quire-synced.a"}
    assert not any(finding.loses for finding in found)

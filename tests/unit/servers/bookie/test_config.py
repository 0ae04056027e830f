"""An original bk_server.conf loads: every key is honoured, ignored by name, or refused with the remedy."""

from __future__ import annotations

from pathlib import Path

from quire.servers.bookie.config import BOOKIE
from quire.service.log import Event
from quire.service.original_keys import is_original_key
from quire.service.unsupported import BOOKIE_RULES

ROOT = Path(__file__).resolve().parents[4]


def test_an_older_name_stands_for_a_field() -> None:
    fields = set(BOOKIE.keys())
    assert fields & set(BOOKIE_RULES.aliases) == set()
    assert set(BOOKIE_RULES.aliases.values()) <= fields


def test_every_honoured_key_is_the_originals_or_begins_with_ours() -> None:
    keys = BOOKIE.keys()
    assert [key for key in keys if not is_original_key(key) and not key.startswith("quire")] == []


def test_the_documented_file_is_what_the_code_says_and_reads_as_the_defaults(log_events: list[Event]) -> None:
    path = ROOT / "conf/bk_server.conf"
    assert path.read_text() == BOOKIE.render()
    assert BOOKIE.load(path) == BOOKIE.build()
    assert [event for event in log_events if "does not obey" in event["event"]] == []
    for name in set(BOOKIE_RULES.by_name) - set(BOOKIE.keys()):
        assert name in path.read_text()

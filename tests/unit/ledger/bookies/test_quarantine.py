from __future__ import annotations

from quire.ledger.bookies.quarantine import NoFaults, Quarantine


def test_a_bookie_is_kept_away_for_its_time_and_no_longer() -> None:
    quarantine = Quarantine(10.0)
    assert quarantine.put("a:1", now=0.0)
    assert quarantine.put("b:1", now=4.0)
    assert quarantine.release(9.9) == []
    assert quarantine.ids() == {"a:1", "b:1"}
    assert quarantine.release(10.0) == ["a:1"]
    assert quarantine.ids() == {"b:1"}
    assert quarantine.release(20.0) == ["b:1"]
    assert quarantine.release(30.0) == []


def test_who_is_there_already_is_not_kept_longer_and_may_come_again() -> None:
    quarantine = Quarantine(10.0)
    quarantine.put("a:1", now=0.0)
    assert not quarantine.put("a:1", now=9.0)
    assert quarantine.release(10.0) == ["a:1"]
    assert quarantine.put("a:1", now=11.0)


def test_nobody_who_counts_has_counted_nothing() -> None:
    assert NoFaults().take_errors() == {}

"""Entry filters are Python files of a folder, loaded when the broker starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.config import BrokerOptions
from broker.dispatch.rules import effective_rules, rules_of_broker
from broker.entry_filters import EntryFilter
from broker.entry_filters.loading import EntryFilters, UnknownFilterError, load_filters
from quire.service.errors import ConfigError

FILTER = """
from broker.entry_filters import EntryFilter, FilteredEntry, FilterResult

class {name}(EntryFilter):
    def filter_entry(self, entry: FilteredEntry) -> FilterResult:
        return FilterResult.REJECT
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("one", "other", "json"):
        (tmp_path / f"{name}.py").write_text(FILTER.format(name=name.title()))
    return tmp_path


def names_of(filters: tuple[EntryFilter, ...]) -> list[str]:
    return [type(each).__name__ for each in filters]


def test_the_named_ones_are_loaded_in_order(folder: Path) -> None:
    found = load_filters(str(folder), ("other", "json"), may_override=False)
    assert names_of(found.standard) == ["Other", "Json"]
    assert not found.may_be_overridden
    with pytest.raises(UnknownFilterError, match="'one'"):
        found.named(["one"])


def test_policies_may_name_those_that_were_there_at_the_start(folder: Path) -> None:
    (folder / "broken.py").write_text("raise ValueError(1)")
    found = load_filters(str(folder), ("one",), may_override=True)
    assert names_of(found.named(["other", "one"])) == ["Other", "One"]
    assert found.named(["one"])[0] is found.standard[0], "a filter is made once"
    for name in ("broken", "none", "../one", "os"):
        with pytest.raises(UnknownFilterError, match="is not in entryFiltersDirectory"):
            found.named([name])


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "no such file"),
        ("x = 1", "not 0"),
        (FILTER.format(name="A") + FILTER.format(name="B"), "not 2"),
        ("raise ValueError('no')", "cannot be imported: ValueError"),
        ("from broker.entry_filters import EntryFilter\nclass A(EntryFilter): pass", "abstract"),
    ],
)
def test_a_name_that_is_no_filter_is_refused_by_its_file(folder: Path, text: str | None, why: str) -> None:
    if text is not None:
        (folder / "bad.py").write_text(text)
    with pytest.raises(ConfigError, match=f"entryFilterNames: filter 'bad': .*{why}"):
        load_filters(str(folder), ("one", "bad"), may_override=False)


class PoliciesSaid:
    def __init__(self, namespace: dict[str, object] | None, topic: dict[str, object] | None) -> None:
        self.of_namespace = namespace
        self.of_topic = topic


def filters_named(names: str) -> dict[str, object]:
    return {"entryFilters": {"entryFilterNames": names}}


def test_the_rules_of_a_topic_go_before_its_namespaces_and_those_before_the_brokers(folder: Path) -> None:
    filters = load_filters(str(folder), ("one",), may_override=True)
    broker = rules_of_broker(BrokerOptions(unacked_messages_per_consumer_max=5), filters)

    def rules(namespace: dict[str, object] | None, topic: dict[str, object] | None):
        return effective_rules(broker, filters, PoliciesSaid(namespace, topic))

    assert rules(None, None) is broker
    assert rules({"bundles": {}}, {"isGlobal": False}) is broker
    assert names_of(rules(filters_named("other,json"), None).filters) == ["Other", "Json"]
    assert names_of(rules(filters_named("other"), filters_named(" json ")).filters) == ["Json"]
    assert names_of(rules(filters_named(""), None).filters) == ["One"]
    assert (
        rules(None, filters_named("nix")).problem == "entry filter 'nix' is not in entryFiltersDirectory of this broker"
    )
    found = rules(
        {"max_unacked_messages_per_consumer": 7, "max_unacked_messages_per_subscription": 8},
        {"maxUnackedMessagesOnConsumer": 0, "maxUnackedMessagesOnSubscription": None},
    )
    assert (found.unacked_per_consumer, found.unacked_per_subscription) == (0, 8)
    only_standard = load_filters(str(folder), ("one",), may_override=False)
    said = PoliciesSaid(filters_named("other"), None)
    assert effective_rules(broker, only_standard, said) is broker, "allowOverrideEntryFilters=false"


def test_without_filters_there_is_nothing_to_load() -> None:
    assert load_filters("/nowhere", (), may_override=False).standard == ()
    assert EntryFilters().standard == ()

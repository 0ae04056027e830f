"""Keys of an original's file without a field in Quire's configuration: one rule for every process."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from quire.service.config import conf_key
from quire.service.errors import ConfigError
from quire.service.log import Event
from quire.service.original_conf import (
    Fate,
    Rule,
    Rules,
    Sorted,
    is_true,
    refused,
    render_tail,
    sort_out,
)
from quire.service.process_conf import Process
from quire.service.properties import Grammar, parse_properties

RULES = Rules(
    {
        "numIOThreads": Rule(Fate.HARMLESS, "one loop"),
        "webSocket*": Rule(Fate.HARMLESS, "no web sockets"),
        "webSocketServiceEnabled": refused(is_true, "there is none; set it to false"),
        "maxProducersPerTopic": Rule(Fate.AT_REST, "no such limit"),
        "brokerDeleteInactiveTopicsEnabled": Rule(Fate.AT_REST, "topics stay", ours=("false",)),
        "backlogQuotaDefaultLimitGB": Rule(Fate.AT_REST, "no quota"),
    },
    {"zookeeperServers": "metadataStoreUrl"},
)
FIELDS = ("metadataStoreUrl", "clusterName")


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    url: str = conf_key("metadataStoreUrl", "", doc="A URL.")
    name: str = conf_key("clusterName", "c", doc="A name.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    names: Names


SAMPLE = Process("sample", Sample, Grammar.JAVA, RULES)


def sorted_out(text: str, fields: Iterable[str] = FIELDS, others: Iterable[str] = ()) -> Sorted:
    return sort_out(parse_properties(text, Grammar.JAVA, source="broker.conf"), fields, RULES, others)


def kept(done: Sorted) -> list[str]:
    return [f"{each.line} {each.name}={each.value}" for each in done.kept]


@pytest.mark.parametrize(
    ("line", "refused_for"),
    [
        ("numIOThreads=many", None),
        ("webSocketNumIoThreads=9", None),
        ("webSocketServiceEnabled=false", None),
        ("webSocketServiceEnabled=True", "there is none; set it to false"),
        ("maxProducersPerTopic=0", None),
        ("maxProducersPerTopic=", None),
        ("maxProducersPerTopic=00", None),
        ("maxProducersPerTopic=5", "it would have no effect here (no such limit); remove it, which leaves the default"),
        ("brokerDeleteInactiveTopicsEnabled=TRUE", None),
        ("brokerDeleteInactiveTopicsEnabled=false", None),
        (
            "brokerDeleteInactiveTopicsEnabled=maybe",
            "it would have no effect here (topics stay); remove it, which leaves the default, or set it to false",
        ),
        ("backlogQuotaDefaultLimitGB=-1", None),
        ("backlogQuotaDefaultLimitGB=10", None),  # what the standalone.conf of the original ships
        (
            "backlogQuotaDefaultLimitGB=11",
            "it would have no effect here (no quota); remove it, which leaves the default",
        ),
    ],
)
def test_a_value_that_asks_for_what_is_not_obeyed_is_refused_with_its_line(line: str, refused_for: str | None) -> None:
    done = sorted_out(f"clusterName=c\n{line}\n")
    assert done.problems == ([] if refused_for is None else [f"broker.conf:2: {line}: {refused_for}"])
    assert kept(done) == ["1 clusterName=c"]


@pytest.mark.parametrize(
    ("text", "ours", "without_effect", "not_obeyed"),
    [
        ("clusterName=1\n#zookeeperServers=x", ["1 clusterName=1"], [], []),
        ("clusterName=1\nclusterName=2", ["2 clusterName=2"], [], []),
        ("zookeeperServers=1\nzookeeperServers=2", ["2 metadataStoreUrl=2"], [], []),
        ("zookeeperServers=1\nmetadataStoreUrl=2", ["2 metadataStoreUrl=2"], ["zookeeperServers"], []),
        ("zookeeperServers=-1", [], ["zookeeperServers"], []),
        ("numIOThreads=1\nclusterName=2", ["2 clusterName=2"], ["numIOThreads"], []),
        ("numIOThreads=\nmaxProducersPerTopic=", [], [], []),
        ("maxProducersPerTopic=9\nmaxProducersPerTopic=0", [], [], ["maxProducersPerTopic"]),
        ("journalSyncData=false", [], ["journalSyncData"], []),
        ("maxProducersPerTopi=1", ["1 maxProducersPerTopi=1"], [], []),
        ("webSocketNumIoThread=1", ["1 webSocketNumIoThread=1"], [], []),  # a typo, though it begins as others do
        ("quireElsewhere=1", [], ["quireElsewhere"], []),
    ],
)
def test_keys_without_a_field_are_taken_out_and_older_names_replaced(
    text: str, ours: list[str], without_effect: list[str], not_obeyed: list[str]
) -> None:
    done = sorted_out(text, others=("quireElsewhere",))
    assert (kept(done), done.without_effect, done.not_obeyed, done.problems) == (ours, without_effect, not_obeyed, [])


def test_a_field_goes_before_a_rule() -> None:
    assert kept(sorted_out("maxProducersPerTopic=5", ("maxProducersPerTopic",))) == ["1 maxProducersPerTopic=5"]


def test_the_keys_that_are_not_obeyed_are_named_in_one_line(tmp_path: Path, log_events: list[Event]) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("numIOThreads=2\nnumIOThreads=3\nbookkeeper_any=1\nmaxProducersPerTopic=0\nclusterName=d\n")
    assert SAMPLE.load(path).names == Names(name="d")
    [told] = [event for event in log_events if "does not obey" in event["event"]]
    assert (told["level"], told["server"], told["file"]) == ("warning", "sample", str(path))
    assert (told["without_effect"], told["at_defaults"]) == ("numIOThreads bookkeeper_any", "maxProducersPerTopic")
    path.write_text("clusterName=d\nnumIOThreads=\n")
    SAMPLE.load(path)
    assert len([event for event in log_events if "does not obey" in event["event"]]) == 1


def test_all_problems_of_a_file_are_in_one_error(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("maxProducersPerTopic=5\nclusterNam=c\nwebSocketServiceEnabled=true\n")
    with pytest.raises(ConfigError) as caught:
        SAMPLE.load(path)
    assert [line.split(":")[1] for line in str(caught.value).splitlines()] == ["1", "3", "2"]
    assert "did you mean clusterName?" in str(caught.value)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sample.conf"
    path.write_text("metadataStoreUrl=u\nclusterName=d\n")
    assert SAMPLE.load(path, {"clusterName": "e"}).names == Names(url="u", name="e")


def test_the_end_of_a_file_has_each_key_once_under_its_reason_but_no_field() -> None:
    tail = render_tail(RULES, fields=("backlogQuotaDefaultLimitGB",))
    assert parse_properties(tail, Grammar.JAVA, source="tail") == []
    for line in (
        "# one loop:",
        "#     numIOThreads",
        "# topics stay:",
        "#     brokerDeleteInactiveTopicsEnabled (or false)",
        "# Older names: zookeeperServers for metadataStoreUrl.",
    ):
        assert line in tail.split("\n")
    assert "backlogQuotaDefaultLimitGB" not in tail

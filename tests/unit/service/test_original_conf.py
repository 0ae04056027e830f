"""Keys of an original's file that ours has no field for: one rule for every process."""

from __future__ import annotations

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
    assignments,
    is_true,
    load_original,
    refused,
    render_tail,
    sort_out,
)

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
class Sample:
    url: str = conf_key("metadataStoreUrl", "")
    name: str = conf_key("clusterName", "c")


def test_lines_that_assign_are_found_with_their_places() -> None:
    text = "# a=1\n b = 2 \n!c=3\nd\n\ne=f=g\nb=\n"
    assert assignments(text) == [(1, "b", "2"), (5, "e", "f=g"), (6, "b", "")]


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
    done = sort_out(f"clusterName=c\n{line}\n", FIELDS, RULES, source="broker.conf")
    assert done.problems == ([] if refused_for is None else [f"broker.conf:2: {line}: {refused_for}"])
    assert done.text == "clusterName=c\n\n"


@pytest.mark.parametrize(
    ("text", "ours", "without_effect", "not_obeyed"),
    [
        ("clusterName=1\n#zookeeperServers=x", "clusterName=1\n#zookeeperServers=x", [], []),
        ("clusterName=1\nclusterName=2", "clusterName=1\n", [], []),
        ("zookeeperServers=1\nzookeeperServers=2", "metadataStoreUrl=1\n", [], []),
        ("zookeeperServers=1\nmetadataStoreUrl=2", "\nmetadataStoreUrl=2", ["zookeeperServers"], []),
        ("zookeeperServers=-1", "", ["zookeeperServers"], []),
        ("numIOThreads=1\nclusterName=2", "\nclusterName=2", ["numIOThreads"], []),
        ("numIOThreads=\nmaxProducersPerTopic=", "\n", [], []),
        ("maxProducersPerTopic=0\nmaxProducersPerTopic=9", "\n", [], ["maxProducersPerTopic"]),
        ("journalSyncData=false", "", ["journalSyncData"], []),
        ("maxProducersPerTopi=1", "maxProducersPerTopi=1", [], []),
        ("webSocketNumIoThread=1", "webSocketNumIoThread=1", [], []),  # a typo, though it begins as others do
    ],
)
def test_keys_without_a_field_are_taken_out_of_the_text_and_older_names_replaced(
    text: str, ours: str, without_effect: list[str], not_obeyed: list[str]
) -> None:
    done = sort_out(text, FIELDS, RULES, source="s")
    assert (done.text, done.without_effect, done.not_obeyed, done.problems) == (ours, without_effect, not_obeyed, [])


def test_a_field_goes_before_a_rule() -> None:
    assert (
        sort_out("maxProducersPerTopic=5", ("maxProducersPerTopic",), RULES, source="s").text
        == "maxProducersPerTopic=5"
    )


def test_what_has_no_effect_is_named_once_and_apart_from_what_is_not_obeyed(
    tmp_path: Path, log_events: list[Event]
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("numIOThreads=2\nnumIOThreads=3\nbookkeeper_any=1\nmaxProducersPerTopic=0\nclusterName=d\n")
    assert load_original(path, Sample, RULES) == Sample(name="d")
    assert [event["keys"] for event in log_events if "ignored" in event["event"]] == ["numIOThreads bookkeeper_any"]
    assert [event["keys"] for event in log_events if "defaults" in event["event"]] == ["maxProducersPerTopic"]


def test_all_problems_of_a_file_are_in_one_error(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("maxProducersPerTopic=5\nclusterNam=c\nwebSocketServiceEnabled=true\n")
    with pytest.raises(ConfigError) as caught:
        load_original(path, Sample, RULES)
    assert [line.split(":")[1] for line in str(caught.value).splitlines()] == ["1", "3", "2"]
    assert "did you mean clusterName?" in str(caught.value)


def test_the_command_line_wins_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sample.conf"
    path.write_text("metadataStoreUrl=u\nclusterName=d\n")
    assert load_original(path, Sample, RULES, overrides={"name": "e"}) == Sample(url="u", name="e")


def test_a_file_that_cannot_be_read_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.conf: cannot be read"):
        load_original(tmp_path / "none.conf", Sample, RULES)
    (tmp_path / "latin.conf").write_bytes(b"clusterName=caf\xe9\n")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 15"):
        load_original(tmp_path / "latin.conf", Sample, RULES)


def test_the_end_of_a_file_has_each_key_once_under_its_reason_but_no_field() -> None:
    tail = render_tail(RULES, fields=("backlogQuotaDefaultLimitGB",))
    assert assignments(tail) == []
    for line in (
        "# one loop:",
        "#     numIOThreads",
        "# topics stay:",
        "#     brokerDeleteInactiveTopicsEnabled (or false)",
        "# Older names: zookeeperServers for metadataStoreUrl.",
    ):
        assert line in tail.split("\n")
    assert "backlogQuotaDefaultLimitGB" not in tail

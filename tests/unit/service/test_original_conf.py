"""Keys of an original's file without a field in Quire's configuration: one rule for every process."""

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
    is_true,
    refused,
    render_tail,
    sort_out,
)
from quire.service.process_conf import Process
from quire.service.properties import Grammar, parse_properties
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues

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


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "original_conf.txt"))
def test_lines_of_a_file(dialogue: Dialogue) -> None:
    """`sorted: a=1 ; b=2` shows the lines that are kept, with their numbers, and what becomes of the others."""
    fields: tuple[str, ...] = FIELDS

    def answer(step: Line) -> str:
        nonlocal fields
        if step.name == "fields":
            fields, step.words = tuple(step.words), []
            return ""
        lines = parse_properties(step.word().replace(" ; ", "\n"), Grammar.JAVA, source="broker.conf")
        done = sort_out(lines, fields, RULES, ("quireElsewhere",))
        told = [f"{each.line} {each.name}={each.value}" for each in done.kept]
        told += [f"no effect: {name}" for name in done.without_effect]
        told += [f"not obeyed: {name}" for name in done.not_obeyed]
        return "\n".join([*told, *(f"refused: {problem}" for problem in done.problems)])

    dialogue.check(answer)


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

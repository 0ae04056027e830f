from __future__ import annotations

from pathlib import Path

import pytest

from quire.spark.topics import TopicsPattern, full_name, partition_index, partition_names, partitioned_name
from tests.support.datadriven import Line
from tests.support.dialogues import Dialogue, dialogues

P = "persistent://public/default/"
LISTED = [f"{P}{local}" for local in ("b-partition-0", "b-partition-1", "a", "ab", "__change_events", "c/d")]


@pytest.mark.parametrize("dialogue", dialogues(Path(__file__).parent / "testdata" / "topics.txt"))
def test_names(dialogue: Dialogue) -> None:
    """P is the namespace public/default, which has the topics b of two partitions, a, ab, __change_events and c/d."""

    def answer(step: Line) -> str:
        text = (step.word() if step.words else "").replace("P/", P).replace("%20", " ")
        match step.name:
            case "full":
                return full_name(text)
            case "partitions":
                topic, _, count = text.partition(" ")
                return " ".join(partition_names(topic, int(count)))
            case "partition":
                return f"{partition_index(text)} of {partitioned_name(text)}"
            case "pattern":
                return str(TopicsPattern.parse(text))
            case "found":
                return " ".join(TopicsPattern.parse(text).topics(LISTED))
            case "matches":
                pattern, _, topic = text.partition(" ")
                return "yes" if TopicsPattern.parse(pattern).matches(topic) else "no"
        raise step.unknown()

    def short(step: Line) -> str:
        try:
            return answer(step).replace(P, "P/")
        except ValueError as error:
            return f"refused: {error}".replace(P, "P/")

    dialogue.check(short)

"""Stories of clients and a broker in testdata/; peer_stories has their language."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stories.text import Step, Story, StoryError, read
from tests.unit.broker.connections.peer_stories import play

STORIES = [(path, story) for path in sorted((Path(__file__).parent / "testdata").glob("*.txt")) for story in read(path)]


@pytest.mark.parametrize("story", [pytest.param(story, id=f"{path.stem}-{story.name}") for path, story in STORIES])
async def test_story(story: Story) -> None:
    await play(story)


@pytest.mark.parametrize(
    "step",
    [
        "a produces id=2 -> waiting",
        "a produces id=2 mode=Exclusive -> ok epoch=0",
        "a receipts -> 0 2",
        "a receipts -> 0 1=",
        "a subscribes -> ServiceNotReady",
        "a told CLOSE_PRODUCER SEND_RECEIPT",
        "a schema -> 0 FIRST",
        "state entries -> 3",
        "epoch -> 0",
        "stored -> m0",
        "unknown",
    ],
)
async def test_a_story_fails_at_a_step_with_another_answer(step: str) -> None:
    steps = ["a produces -> ok", "a sends 0 1", step]
    with pytest.RaisesGroup(
        pytest.RaisesExc(StoryError, match=f"^it.txt:{len(steps)}"), allow_unwrapped=True, flatten_subgroups=True
    ):
        await play(Story("it", "it.txt:0", steps=[Step(f"it.txt:{at}", text) for at, text in enumerate(steps, 1)]))

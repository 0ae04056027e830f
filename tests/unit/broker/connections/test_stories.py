"""Stories of clients and a broker in testdata/; peer_stories has their language."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stories.text import Story, fails_at_its_end, told
from tests.unit.broker.connections.peer_stories import play


@pytest.mark.parametrize("story", told(Path(__file__).parent / "testdata"))
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
    await fails_at_its_end(play, steps)

"""Stories of one subscription in testdata/; stage_stories has their language."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stories.text import Story, fails_at_its_end, told
from tests.unit.broker.dispatch.stage_stories import play


@pytest.mark.parametrize("story", told(Path(__file__).parent / "testdata"))
async def test_story(story: Story) -> None:
    await play(story)


@pytest.mark.parametrize(
    "step", ["gets a -> 0", "gets a", "number a -> 1", "state backlog -> 0", "told a -> active", "begun 0", "unknown"]
)
async def test_a_story_fails_at_a_step_with_another_answer(step: str) -> None:
    steps = ["on Shared", "join a permits=2", "publish 0..2", "gets a -> 0 1", "state permits a -> 0", step]
    await fails_at_its_end(play, steps)

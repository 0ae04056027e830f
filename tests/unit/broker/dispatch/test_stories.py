"""Stories of one subscription in testdata/; stage_stories has their language."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stories.text import Step, Story, StoryError, read
from tests.unit.broker.dispatch.stage_stories import play

STORIES = [(path, story) for path in sorted((Path(__file__).parent / "testdata").glob("*.txt")) for story in read(path)]


@pytest.mark.parametrize("story", [pytest.param(story, id=f"{path.stem}-{story.name}") for path, story in STORIES])
async def test_story(story: Story) -> None:
    await play(story)


@pytest.mark.parametrize(
    "step", ["gets a -> 0", "gets a", "number a -> 1", "state backlog -> 0", "told a -> active", "begun 0", "unknown"]
)
async def test_a_story_fails_at_a_step_with_another_answer(step: str) -> None:
    steps = ["on Shared", "join a permits=2", "publish 0..2", "gets a -> 0 1", "state permits a -> 0", step]
    with pytest.RaisesGroup(
        pytest.RaisesExc(StoryError, match=f"^it.txt:{len(steps)}"), allow_unwrapped=True, flatten_subgroups=True
    ):
        await play(Story("it", "it.txt:0", steps=[Step(f"it.txt:{at}", text) for at, text in enumerate(steps, 1)]))

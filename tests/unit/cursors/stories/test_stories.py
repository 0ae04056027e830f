"""Stories of one cursor in testdata/; player has their language."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stories.text import Story, fails_at_its_end, told
from tests.unit.cursors.stories.player import play


@pytest.mark.parametrize("story", told(Path(__file__).parent / "testdata"))
async def test_story(story: Story) -> None:
    await play(story)


@pytest.mark.parametrize("step", ["see mark=1:1", "see again.ranges=5,7", "see ledgers=101", "new", "unknown"])
async def test_a_story_fails_at_a_step_with_another_answer(step: str) -> None:
    await fails_at_its_end(play, ["new", "acked 0 5", step])

"""Stories of one log in testdata/; player has their language."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.stories.text import Story, fails_at_its_end, told
from tests.unit.managed_ledger.cluster import Cluster
from tests.unit.managed_ledger.stories.player import LogPlayer


@pytest.mark.parametrize("story", told(Path(__file__).parent / "testdata"))
async def test_story(story: Story, cluster: Cluster, expect_error: Callable[[str], None]) -> None:
    await LogPlayer(cluster, expect_error).play(story)


@pytest.mark.parametrize(
    "step",
    [
        "see read=0..3",
        "see lists=0*3",
        "see ledgers=0..1",
        "see s.to=0:0..1",
        "read 0:1 -> 0..2 at 0:1",
        "trim",
        "unknown",
    ],
)
async def test_a_story_fails_at_a_step_with_another_answer(step, cluster, expect_error):
    steps = ["owner", "append s 0..2", "until see s.count=3", step]
    await fails_at_its_end(LogPlayer(cluster, expect_error).play, steps)

"""Stories of the REST in testdata/; rest_stories has their language."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stories.text import Step, Story, StoryError, read
from tests.unit.broker.admin.rest_stories import play

STORIES = [(path, story) for path in sorted((Path(__file__).parent / "testdata").glob("*.txt")) for story in read(path)]


@pytest.mark.parametrize("story", [pytest.param(story, id=f"{path.stem}-{story.name}") for path, story in STORIES])
async def test_story(story: Story) -> None:
    await play(story)


@pytest.mark.parametrize(
    "step",
    [
        "GET TENANTS -> 404",
        "GET TENANTS -> 2xx [",
        'GET TENANTS -> 200 ["acme"]',
        "GET TENANTS -> 200 ~acme",
        "GET TENANTS -> 200 !public",
        "GET TENANTS -> 200 /publi/",
        "GET TENANTS/x -> 404 ~acme",
        'GET TENANTS/x -> 404 {"reason":"acme"}',
        "GET BROKERS/c/b:8080/ownedNamespaces -> 307 http://c:8080",
        "refused TopicExistsError PUT TOPICS/t -> 404",
        "calls -> exists",
        "called exists",
        "node /admin/policies/public/default -> none",
        "policies -> {}",
        "set NS retention:COPIES",
        "allowed -> GET",
        "unknown",
    ],
)
async def test_a_story_fails_at_a_step_with_another_answer(step: str) -> None:
    steps = ["store /loadbalance/brokers/b:8080 {}", "GET TENANTS -> 200", step]
    with pytest.RaisesGroup(
        pytest.RaisesExc(StoryError, match=f"^it.txt:{len(steps)}"), allow_unwrapped=True, flatten_subgroups=True
    ):
        await play(Story("it", "it.txt:0", steps=[Step(f"it.txt:{at}", text) for at, text in enumerate(steps, 1)]))

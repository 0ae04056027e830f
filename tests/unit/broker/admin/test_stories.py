"""Stories of the REST in testdata/; rest_stories has their language."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.stories.text import Story, fails_at_its_end, told
from tests.unit.broker.admin.rest_stories import play


@pytest.mark.parametrize("story", told(Path(__file__).parent / "testdata"))
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
    await fails_at_its_end(play, steps)

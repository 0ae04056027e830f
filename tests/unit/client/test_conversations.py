"""Clients, producers, readers and subscriptions, step by step."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.dialogues import Dialogue, dialogues
from tests.unit.client.conversation import conversation

TESTDATA = Path(__file__).parent / "testdata"


@pytest.mark.seeded
@pytest.mark.parametrize(
    "dialogue",
    [
        *dialogues(TESTDATA / "client.txt"),
        *dialogues(TESTDATA / "producer.txt"),
        *dialogues(TESTDATA / "reader.txt"),
        *dialogues(TESTDATA / "subscription.txt"),
    ],
)
async def test_a_conversation(dialogue: Dialogue) -> None:
    async with conversation(dialogue) as talk:
        await dialogue.acheck(talk.answer)

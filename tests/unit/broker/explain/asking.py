"""Explanations of a whole broker in memory, asked for as the tests need them."""

from __future__ import annotations

from typing import Any

from tests.unit.broker.peers import Peer, Room


async def ask(room: Room, name: str = "s") -> dict[str, Any]:
    """Return the explanation of a subscription."""
    topic = await room.topic()
    return room.broker.explain.told.delivery(topic, topic.subscriptions[name]).as_json()


async def producers(room: Room) -> dict[str, Any]:
    return room.broker.explain.told.producers(await room.topic()).as_json()


async def ledgers(room: Room) -> list[dict[str, Any]]:
    return [each.as_json() for each in room.broker.explain.told.ledgers(await room.topic())]


async def publisher(room: Room, *payloads: bytes, **metadata: Any) -> Peer:
    peer = await room.connect()
    await peer.producer()
    await peer.publish(*payloads, **metadata)
    return peer

"""Requests to a web port, as a program without a library sends them."""

from __future__ import annotations

import json

import trio


async def request(address: tuple[str, int], method: str, path: str, body: object) -> tuple[int, str]:
    """`body`: bytes, or a value that is sent as JSON."""
    data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(data)}\r\n\r\n"
    async with await trio.open_tcp_stream(*address) as stream:
        await stream.send_all(head.encode() + data)
        received = b"".join([chunk async for chunk in stream])
    start, _, answer = received.partition(b"\r\n\r\n")
    return int(start.split()[1]), answer.decode()

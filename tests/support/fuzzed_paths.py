"""Parts of paths for fuzzed requests: names under which something exists, and hostile ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NAMES: Mapping[str, Sequence[str]] = {
    "tenant": ("public",),
    "namespace": ("default",),
    "topic": ("a", "p", "p-partition-1", "missing"),
    "subscription": ("s", "missing"),
    "domain": ("persistent", "non-persistent"),
    "cluster": ("standalone",),
}
"""Names under which something may exist."""
HOSTILE = (
    "..",
    ".",
    "%2e%2e",
    "%2E",
    "%252e%252e",
    "%252525252e",
    "a%2Fb",
    "..%2f..%2fadmin",
    "%2F",
    "a%252Fb",
    "a%5Cb",
    "..%5c",
    "%00",
    "a%00b",
    "%c0%ae%c0%ae",
    "%c0%af",
    "%e0%80%af",
    "%ed%a0%80",
    "%f8%88%80%80%80",
    "%ff",
    "%",
    "%2",
    "%zz",
    "%u002e",
    "a%0d%0aX:%201",
    "%e2%80%a8",
    "%ef%bb%bfa",
    "a;b=1",
    "a%3Fb",
    "a%23b",
    "+",
    "a+b",
    "%20",
    "~",
    "a" * 255,
    "a" * 256,
    "a" * 5000,
    "%41" * 2000,
    "-partition-0",
    "a-partition-99999999999999999999",
    "9223372036854775808",
    "-9223372036854775809",
    "1e9",
    "0x1",
    "__proto__",
    "null",
)
"""Parts of paths: dot segments, escapes of escapes, bytes that are no UTF-8, control characters, long names, numbers
that are out of range."""


def ends(operation: Mapping[str, Any]) -> bool:
    """Decide whether the answer of an operation ends by itself: streams of events do not."""
    return "text/event-stream" not in operation["responses"].get("200", {}).get("content", {})

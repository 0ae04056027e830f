"""Options of a table: arguments to the source's options, and those that a table has not. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from quire.spark.errors import OptionError
from quire.spark.options.parse import Options, canonical_name
from quire.tables.bounds import Bound, bound_options

_NO_SUBSCRIPTION = "a table is read without a subscription: leave it out; the topic's retention keeps the messages"
_NO_TASKS = "a table is cut into ranges of even size: leave it out, or give parallel=<ranges read at a time>"
_NO_TRIGGER = "it is for a stream, which reads in steps: leave it out"
REFUSED = {
    "subscription": _NO_SUBSCRIPTION,
    "subscriptionPrefix": _NO_SUBSCRIPTION,
    "hold": _NO_SUBSCRIPTION,
    "maxMessagesPerTrigger": _NO_TRIGGER,
    "maxBytesPerTrigger": _NO_TRIGGER,
    "minMessagesPerTrigger": _NO_TRIGGER,
    "maxTriggerDelay": _NO_TRIGGER,
    "topicsRefreshMs": _NO_TRIGGER,
    "minPartitions": _NO_TASKS,
    "maxEntriesPerTask": _NO_TASKS,
    "deadLetterTopic": "a table does not write: give onDecodeError=null, and look at the column __decodeError",
    "trace": "it is for tests of Spark: leave it out",
    "topic": "it is the first argument",
    "topics": "it is the first argument",
    "topicsPattern": "a table has topics by name: give them as the first argument",
}
"""Options of the source that a table has not, and the remedy."""


def request_options(
    topics: str | Sequence[str],
    *,
    start: Bound = None,
    end: Bound = None,
    columns: Sequence[str] | None = None,
    service_url: str | None = None,
    admin_url: str | None = None,
    decode: str | None = None,
    options: Mapping[str, object],
) -> Options:
    """Return the checked options of a table. Raises OptionError."""
    names = (topics,) if isinstance(topics, str) else tuple(topics)
    if not names or not all(isinstance(name, str) and name.strip() for name in names):
        raise OptionError("topics", repr(topics), "give the name of a topic, or a list of names")
    if any("," in name for name in names):
        raise OptionError("topics", repr(topics), "give several topics as a list")
    if isinstance(columns, str):
        raise OptionError("columns", columns, "give a list of names")
    made: dict[str, str] = {"topics": ",".join(names)} if len(names) > 1 else {"topic": names[0]}
    made |= bound_options("start", start, names) | bound_options("end", end, names)
    if columns is not None:
        made["columns"] = ",".join(columns)
    for name, text in (("service.url", service_url), ("admin.url", admin_url), ("decode", decode)):
        if text is not None:
            made[name] = text
    for key, value in options.items():
        name = canonical_name(key)
        if name in REFUSED:
            raise OptionError(name, None, REFUSED[name])
        if name == "onDecodeError" and str(value).lower() == "deadletter":
            raise OptionError(name, str(value), REFUSED["deadLetterTopic"])
        if name in made and not (name == "decode" and decode == "none"):
            raise OptionError(name, None, "it is given twice, as an argument and among the options: remove one")
        made[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return Options.parse(made, use="batch")

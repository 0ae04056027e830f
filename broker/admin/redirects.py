"""Which broker answers: a call about one topic, or one bundle, is its owner's, and goes there with 307.

Path and query stay as they came; only `authoritative` is set where the lookup says that the next broker shall take the
bundle if nobody has it.

Source: Pulsar's PulsarWebResource (validateTopicOwnership, validateBundleOwnership).
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from broker.admin.errors import RedirectError
from broker.admin.raw_paths import raw_path
from broker.admin.requests import Call
from broker.errors import ServiceNotReadyError
from broker.ownership.lookup import Connect, Redirect
from quire.wire.pulsar.names import TopicName


async def at_owner(call: Call, name: TopicName) -> None:
    """Go on if the topic is this broker's; RedirectError if it is another's. A partitioned topic is anybody's: who is asked
    asks the owners of its partitions. BrokerError, as a lookup."""
    cluster = call.service.cluster
    if cluster is None:
        return
    if name.partition < 0 and await call.administration.partitions(name):
        return
    found = await cluster.ownership.lookup(name, authoritative=call.flag("authoritative"))
    if isinstance(found, Connect) and found.mine:
        return
    raise redirect(call, found)


def redirect(call: Call, found: Connect | Redirect) -> RedirectError:
    """To where a lookup points."""
    return redirect_to(call, found.web_url, authoritative=isinstance(found, Redirect) and found.authoritative)


def redirect_to(call: Call, web_url: str, *, authoritative: bool = False) -> RedirectError:
    """To another broker; ServiceNotReadyError if it has no web port."""
    if not web_url:
        raise ServiceNotReadyError("the owner has no web port")
    query = parse_qsl(call.request.url.query, keep_blank_values=True)
    if authoritative:
        query = [(key, value) for key, value in query if key != "authoritative"] + [("authoritative", "true")]
        text = urlencode(query)
    else:
        text = call.request.url.query
    path = raw_path(call.request.scope)
    return RedirectError(f"{web_url.rstrip('/')}{path}{'?' if text else ''}{text}")

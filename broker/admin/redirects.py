"""Redirects of admin calls: a call about one topic, or one bundle, goes to its owner with 307.

Path and query stay as they came; only `authoritative` is set where the lookup says that the next broker is to take the
bundle if no broker has it.

Source: Pulsar's PulsarWebResource (validateTopicOwnership, validateBundleOwnership).
"""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from broker.admin.errors import RedirectError
from broker.admin.openapi.parameters import AUTHORITATIVE
from broker.admin.raw_paths import raw_path
from broker.admin.requests import AdminCall
from broker.errors import ServiceNotReadyError
from broker.ownership.lookup import Connect, Redirect
from broker.ownership.urls import Urls
from quire.wire.pulsar.names import TopicName


async def at_owner(call: AdminCall, name: TopicName) -> None:
    """Return if the topic is this broker's; raise RedirectError if another broker serves it.

    Any broker answers for a partitioned topic, and asks the owners of its partitions. Raises the BrokerErrors of a
    lookup."""
    cluster = call.service.cluster
    if cluster is None:
        return
    if name.partition < 0 and await call.administration.partitions(name):
        return
    found = await cluster.ownership.lookup(name, authoritative=call.flag(AUTHORITATIVE))
    if isinstance(found, Connect) and found.mine:
        return
    raise redirect(call, found)


def redirect(call: AdminCall, found: Connect | Redirect) -> RedirectError:
    """Raise the redirect that follows from a lookup."""
    return redirect_to(call, found, authoritative=isinstance(found, Redirect) and found.authoritative)


def redirect_to(call: AdminCall, urls: Urls, *, authoritative: bool = False) -> RedirectError:
    """Raise a redirect to another broker; ServiceNotReadyError if it has no web port. A request that came over TLS is
    never sent to a port without it."""
    web_url = urls.web_url_tls if call.is_tls else urls.web_url
    if not web_url:
        with_tls = " with TLS" if call.is_tls else ""
        raise ServiceNotReadyError(f"the broker that serves this has no web port{with_tls}")
    query = parse_qsl(call.request.url.query, keep_blank_values=True)
    if authoritative:
        query = [(key, value) for key, value in query if key != "authoritative"] + [("authoritative", "true")]
        text = urlencode(query)
    else:
        text = call.request.url.query
    path = raw_path(call.request.scope)
    return RedirectError(f"{web_url.rstrip('/')}{path}{'?' if text else ''}{text}")

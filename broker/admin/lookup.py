"""/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}: the broker that serves a topic.

    GET      ?listenerName=     {"brokerUrl", "brokerUrlTls", "httpUrl", "httpUrlTls", "nativeUrl", "brokerUrlSsl"}
                                307 ask another broker, 404 no such namespace, 503 a listener that is not there
    GET      /bundle            the topic's bundle, 0x00000000_0x40000000, as bare text

URLs that are not served are empty, not left out: old C++ clients refuse an answer without brokerUrlTls or brokerUrlSsl.
Source: Pulsar's LookupData and TopicLookup; HTTPLookupService of the C++ client.
"""

from __future__ import annotations

from starlette.responses import Response

from broker.admin.openapi.parameters import AUTHORITATIVE
from broker.admin.redirects import redirect
from broker.admin.requests import AdminCall
from broker.admin.resource import answer, text
from broker.errors import ServiceNotReadyError
from broker.ownership.lookup import Connect, Redirect
from broker.ownership.urls import plain
from quire.service.web.parameters import Parameter

_LISTENER = Parameter("listenerName", "Listener whose addresses are wanted; there are none but the default.")


async def owner(call: AdminCall) -> Response:
    name = call.topic()
    headers = call.request.headers
    if listener := call.given(_LISTENER) or headers.get("x-pulsar-listenername"):
        raise ServiceNotReadyError(f"the broker do not have {listener} listener")  # clients look for these words
    # Raises if the namespace does not exist. The topic itself may be made by its first user.
    await call.administration.partitions(name)
    service = call.service
    found = Connect(service.broker_url(), service.web_url(), True, service.broker_url_tls(), service.web_url_tls())
    if call.service.cluster is not None:
        answered = await call.service.cluster.ownership.lookup(name, authoritative=call.flag(AUTHORITATIVE))
        if isinstance(answered, Redirect):
            raise redirect(call, answered)
        if not answered.mine:
            found = answered
    return answer(
        {
            "brokerUrl": plain(found.broker_url),
            "brokerUrlTls": found.broker_url_tls,
            "httpUrl": plain(found.web_url),
            "httpUrlTls": found.web_url_tls,
            "nativeUrl": plain(found.broker_url),
            "brokerUrlSsl": found.broker_url_tls,
        }
    )


async def bundle(call: AdminCall) -> Response:
    name = call.topic()
    return text((await call.cluster.namespaces.bundles(name.namespace_name)).find(name).range)

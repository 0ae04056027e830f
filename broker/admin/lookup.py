"""/lookup/v2/topic/{domain}/{tenant}/{namespace}/{topic}: which broker serves a topic. Here it is always this one.

    GET      ?listenerName=     {"brokerUrl", "brokerUrlTls", "httpUrl", "httpUrlTls", "nativeUrl", "brokerUrlSsl"}
                                404 no such namespace, 503 a listener that is not there

URLs that are not served are empty, not left out: old C++ clients refuse an answer without brokerUrlTls or brokerUrlSsl.
Source: Pulsar's LookupData and TopicLookup; HTTPLookupService of the C++ client.
"""

from __future__ import annotations

from starlette.responses import Response

from broker.admin.requests import Call
from broker.admin.resource import answer
from broker.errors import ServiceNotReadyError


async def owner(call: Call) -> Response:
    name = call.topic()
    query, headers = call.request.query_params, call.request.headers
    if listener := query.get("listenerName") or headers.get("x-pulsar-listenername"):
        raise ServiceNotReadyError(f"the broker do not have {listener} listener")  # the words clients look for
    # Raises if the namespace is not there; the topic itself may be made by whoever comes.
    await call.administration.partitions(name)
    broker_url = call.service.broker_url()
    return answer(
        {
            "brokerUrl": broker_url,
            "brokerUrlTls": "",
            "httpUrl": call.service.web_url(),
            "httpUrlTls": "",
            "nativeUrl": broker_url,
            "brokerUrlSsl": "",
        }
    )

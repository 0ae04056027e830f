"""/admin/v2/brokers/configuration: keys that change while brokers run, without a restart.

GET      configuration                    names of the keys that can be changed
GET      configuration/values             {"maxProducersPerTopic": "5"}: what is stored, for all brokers
GET      configuration/runtime            all values that hold at this broker
POST     configuration/{name}/{value}     200; 412 no such key, one that needs a restart, an invalid value
DELETE   configuration/{name}             200: the files' values hold again; 412 a key that cannot be changed

Every broker obeys a stored value within a second, and from its start. Source: Pulsar's BrokersBase.
"""

from __future__ import annotations

from starlette.responses import Response

from broker.admin.errors import NotServedError, PreconditionError
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.dynamic.configuration import DynamicConfiguration

VALUE_MAX = 10_000


async def names(call: AdminCall) -> Response:
    """Answer the keys that can be changed."""
    return answer(_configuration(call).conf.names())


async def values(call: AdminCall) -> Response:
    """Answer what is stored."""
    return answer(await _configuration(call).stored())


async def runtime(call: AdminCall) -> Response:
    """Answer what holds."""
    return answer(_configuration(call).conf.values())


async def put(call: AdminCall) -> Response:
    """Store a value."""
    configuration, name, text = _configuration(call), call.part("name"), call.part("value")
    problem = configuration.conf.refusal(name, text)
    if not problem and len(text) > VALUE_MAX:
        problem = f"a value has at most {VALUE_MAX} characters"
    if problem:
        raise PreconditionError(problem)
    await configuration.put(name, text)
    return Response()


async def delete(call: AdminCall) -> Response:
    """Remove a value, also of a key that another program has stored."""
    configuration, name = _configuration(call), call.part("name")
    if name not in await configuration.stored() and name not in configuration.conf.names():
        raise PreconditionError(f"{name[:100]!a} is no key that can be changed while a broker runs")
    await configuration.delete(name)
    return Response()


def _configuration(call: AdminCall) -> DynamicConfiguration:
    found = call.cluster.configuration
    if found is None:
        raise NotServedError("this server has no stored configuration")
    return found

"""/admin/v2/clusters/{cluster}/failureDomains: brokers that fail together, over which anti-affinity groups are spread.

GET      {domains}               {name: {"brokers": ["host:8080"]}}
GET      {domains}/{domain}      {"brokers": ["host:8080"]}; 404
POST     {domains}/{domain}      204; 400 no list of brokers, 409 one of them is in another domain
DELETE   {domains}/{domain}      200; 404

They count with failureDomainsEnabled=true. A standalone server has one broker: a domain is refused there (412).
Source: Pulsar's ClustersBase.
"""

from __future__ import annotations

from starlette.responses import Response

from broker.admin.errors import ExistsError, MalformedRequestError, NotThereError, PreconditionError
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.ownership.affinity.store import FailureDomains, brokers_of
from broker.ownership.values import Json
from quire.wire.pulsar.errors import InvalidNameError
from quire.wire.pulsar.names import NamespaceName

BROKERS_MAX = 10_000


async def every(call: AdminCall) -> Response:
    """Answer all domains of a cluster."""
    return answer(await _domains(call).every(call.cluster_name()))


async def one(call: AdminCall) -> Response:
    """Answer one domain."""
    cluster, name = call.cluster_name(), _name(call)
    found = (await _domains(call).every(cluster)).get(name)
    if found is None:
        raise _no_such(cluster, name)
    return answer(found)


async def put(call: AdminCall) -> None:
    """Set one domain."""
    cluster, name, domain = call.cluster_name(), _name(call), await call.json()
    try:
        brokers = brokers_of(domain)
    except ValueError as error:
        raise MalformedRequestError(str(error)) from error
    if not call.cluster.broker_id:
        raise PreconditionError("a standalone server has one broker: it is in no failure domain")
    if len(brokers) > BROKERS_MAX:
        raise PreconditionError(f"a failure domain has at most {BROKERS_MAX} brokers")
    for other, found in (await _domains(call).every(cluster)).items():
        if other != name and (shared := sorted(_known_brokers(found).intersection(brokers))):
            raise ExistsError(f"broker {shared[0][:100]!a} is in the failure domain {other!a} already")
    await _domains(call).put(cluster, name, {"brokers": brokers})


async def delete(call: AdminCall) -> Response:
    """Delete one domain."""
    cluster, name = call.cluster_name(), _name(call)
    if not await _domains(call).delete(cluster, name):
        raise _no_such(cluster, name)
    return Response()


def _known_brokers(domain: Json) -> set[str]:
    try:
        return set(brokers_of(domain))
    except ValueError:
        return set()  # not ours: it is shown as it is


def _name(call: AdminCall) -> str:
    name = call.part("domain")
    try:
        NamespaceName.parse(f"{name}/x")
    except InvalidNameError as error:
        raise PreconditionError(f"{name[:100]!a} cannot be the name of a failure domain") from error
    return name


def _no_such(cluster: str, name: str) -> NotThereError:
    return NotThereError(f"Domain {name[:100]} doesn't exist in cluster {cluster}")


def _domains(call: AdminCall) -> FailureDomains:
    return FailureDomains(call.cluster.metadata)

"""/admin/v2/brokers, /admin/v2/bookies: registered brokers and bookies.

GET      brokers, brokers/{cluster}                          ["host:8080"]; 404 no such cluster
GET      brokers/leaderBroker                                {"brokerId","serviceUrl"}; 404 there is none now
GET      brokers/{cluster}/{broker}/ownedNamespaces          bundle -> {"broker_assignment","is_controlled","is_active"}
                                                             307 to that broker, 404
GET      brokers/version                                     text
GET      brokers/internal-configuration                      where the metadata is
GET      brokers/backlog-quota-check                         204: all loaded topics of this broker were checked
GET      bookies/all                                         {"bookies":[{"bookieId":"host:3181"}]}

`brokers/health` and `brokers/ready` are the web port's own; `elsewhere` decides whose health is asked for. Source:
Pulsar's BrokersBase and Bookies, and PulsarWebResource (maybeRedirectToBroker).
"""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from broker.admin.cluster import clusters
from broker.admin.errors import NotThereError, RedirectError, status_of
from broker.admin.redirects import redirect_to
from broker.admin.requests import AdminCall, Service
from broker.admin.resource import NoContent, answer, reason, text
from broker.errors import BrokerError, translated
from broker.ownership.brokers import BROKERS, LEADER
from broker.ownership.values import decode_report
from broker.topics.policy_values import decode
from quire.distribution import installed_version
from quire.metadata.bookies import available, readonly
from quire.metadata.errors import NoNodeError
from quire.metadata.paths import is_valid
from quire.metadata.store import Node


async def names(call: AdminCall) -> Response:
    return answer(await living(call))


async def names_of_cluster(call: AdminCall) -> Response:
    name = call.cluster_name()
    if name != call.cluster.cluster_name and name not in await clusters.known(call):
        raise NotThereError(f"Cluster does not exist: {name}")
    return answer(await living(call) if name == call.cluster.cluster_name else [])


async def leader(call: AdminCall) -> Response:
    if not call.cluster.broker_id:  # there is one broker, and no election
        [only] = await living(call)
        return answer({"brokerId": only, "serviceUrl": call.service.web_url_tls() or call.service.web_url()})
    node = await _node(call, LEADER)
    if node is None:
        raise NotThereError("Couldn't find leader broker")
    found = decode(node.value)
    return answer({"brokerId": found.get("brokerId"), "serviceUrl": found.get("serviceUrl")})


async def owned(call: AdminCall) -> Response:
    """Return the bundles of this broker. Another broker is asked itself."""
    await at_broker(call, call.part("broker"))
    status = {"broker_assignment": "shared", "is_controlled": False, "is_active": True}
    return answer({str(bundle): status for bundle in call.cluster.ownership.owned()})


async def at_broker(call: AdminCall, broker_id: str) -> None:
    """Return if the broker of an id, or of a web URL, is this one.

    Raises RedirectError to another broker, NotThereError if none of this id is registered, BrokerError."""
    plain = broker_id.removeprefix("http://").removeprefix("https://")
    addresses = (call.service.web_url(), call.service.web_url_tls())
    if plain == call.broker_id or f"http://{plain}" in addresses or f"https://{plain}" in addresses:
        return
    path = f"{BROKERS}/{plain}"
    # Brokers do not register where there is only one. A slash would name another node.
    can_be = bool(call.cluster.broker_id) and "/" not in plain and is_valid(path)
    node = await _node(call, path) if can_be else None
    if node is None:
        raise NotThereError(f"there is no broker {broker_id[:100]!a}")
    try:
        report = decode_report(plain, node.value)
    except BrokerError as error:
        raise NotThereError(str(error)) from error
    raise redirect_to(call, report.broker)


async def elsewhere(service: Service, request: Request, broker_id: str) -> Response | None:
    """Return the answer of `brokers/health` for another broker, a redirect or 404; None: it is this one."""
    try:
        await at_broker(AdminCall(service, request, {}), broker_id)
    except RedirectError as error:
        return Response(status_code=error.status, headers={"Location": str(error)})
    except NotThereError as error:
        return reason(error.status, str(error))
    except BrokerError as error:
        return reason(status_of(error, {}), str(error) or type(error).__name__)
    return None


async def version(call: AdminCall) -> Response:
    return text(installed_version())


async def internal_configuration(call: AdminCall) -> Response:
    url = call.cluster.metadata_url
    return answer(
        {
            "metadataStoreUrl": url,
            "configurationMetadataStoreUrl": url,
            "ledgersRootPath": call.cluster.ledgers_root,
            "bookkeeperMetadataServiceUri": f"metadata-store:{url}" if url else "",
        }
    )


async def bookies(call: AdminCall) -> Response:
    """Return all bookies ever registered and not decommissioned: those with a cookie."""
    metadata, root = call.cluster.metadata, call.cluster.ledgers_root
    with translated("bookies"):
        try:
            found = await metadata.children(f"{root}/cookies")
        except NoNodeError:
            found = [*await available(metadata, root=root), *await readonly(metadata, root=root)]
    return answer({"bookies": [{"bookieId": bookie} for bookie in sorted(set(found))]})


async def living(call: AdminCall) -> list[str]:
    """Return the ids of registered brokers; only this one where brokers do not register."""
    with translated("brokers"):
        try:
            return await call.cluster.metadata.children(BROKERS)
        except NoNodeError:
            return [call.service.web_url().partition("://")[2]]


async def _node(call: AdminCall, path: str) -> Node | None:
    with translated(path):
        return await call.cluster.metadata.get(path)


async def check_backlog_quotas(call: AdminCall) -> NoContent:
    """Check the backlogs of all loaded topics of this broker against their quotas, now."""
    await call.administration.check_quotas()
    return NoContent()

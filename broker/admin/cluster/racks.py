"""/admin/v2/bookies/racks-info: where bookies stand, which the copies of ledgers are spread over.

GET      bookies/racks-info                 {group: {bookie: {"rack": "/region/rack", "hostname": "host"}}}
GET      bookies/racks-info/{bookie}        {"rack","hostname"}; 404
POST     bookies/racks-info/{bookie}        ?group= (needed); 204; 412 no group, or no rack
DELETE   bookies/racks-info/{bookie}        204; 404

The node is Pulsar's, /bookies; brokers, bookies' clients and auto recovery follow it (`quire.ledger.placement`).
Source: Pulsar's Bookies, BookiesRackConfiguration.
"""

from __future__ import annotations

from collections.abc import Callable

from starlette.responses import Response

from broker.admin.errors import NotThereError, PreconditionError
from broker.admin.requests import AdminCall
from broker.admin.resource import answer
from broker.errors import translated
from broker.ownership.values import Json, decode_json, encode_json
from quire.ledger.placement.topology import clean_location
from quire.metadata.errors import NodeExistsError, NoNodeError
from quire.metadata.update_loop import update_node
from quire.service.web.parameters import Parameter
from quire.service.web.shapes import Record, Text

_GROUP = Parameter("group", "Group of the bookie; needed.")
_BODY = Record({"rack": Text(1), "hostname": Text()}, needed=("rack",))
PATH = "/bookies"
NAME_MAX = 256
BOOKIES_MAX = 10_000


async def every(call: AdminCall) -> Response:
    """Answer the racks of all bookies by group."""
    return answer(await _racks(call))


async def one(call: AdminCall) -> Response:
    """Answer the rack of one bookie."""
    bookie = call.part("bookie")
    for group in (await _racks(call)).values():
        if isinstance(group, dict) and bookie in group:
            return answer(group[bookie])
    raise NotThereError(f"Bookie rack placement configuration not found: {bookie[:NAME_MAX]}")


async def put(call: AdminCall) -> None:
    """Set the rack of one bookie."""
    bookie, group, info = call.part("bookie"), call.given(_GROUP) or "", await call.json()
    if not 0 < len(group) <= NAME_MAX or not 0 < len(bookie) <= NAME_MAX:
        raise PreconditionError("Bookie 'group' parameters is missing, or a name is too long")
    given = _BODY.check(info, 'a rack, such as {"rack": "/region/rack", "hostname": "host"},', PreconditionError)
    rack: str = given["rack"]
    hostname: str | None = given.get("hostname")
    if not clean_location(rack):
        raise PreconditionError(f"rack {rack[:NAME_MAX]!a} is not like /region/rack")
    if rack.strip("/").count("/") > 1:
        raise PreconditionError(f"rack {rack[:NAME_MAX]!a} is neither /rack nor /region/rack")

    def changed(racks: Json) -> Json:
        found = _without(racks, bookie)
        found.setdefault(group, {})[bookie] = {"rack": rack} | ({} if hostname is None else {"hostname": hostname})
        if sum(map(len, found.values())) > BOOKIES_MAX:
            raise PreconditionError(f"there are racks of {BOOKIES_MAX} bookies already")
        return found

    await _change(call, changed)


async def delete(call: AdminCall) -> None:
    """Forget the rack of one bookie."""
    bookie = call.part("bookie")

    def changed(racks: Json) -> Json:
        found = _without(racks, bookie)
        if found == racks:
            raise NotThereError(f"Bookie rack placement configuration not found: {bookie[:NAME_MAX]}")
        return found

    await _change(call, changed)


def _without(racks: Json, bookie: str) -> Json:
    """Return the racks without a bookie, and without groups that are empty then."""
    left = {
        group: {each: info for each, info in of_group.items() if each != bookie} for group, of_group in racks.items()
    }
    return {group: of_group for group, of_group in left.items() if of_group}


async def _racks(call: AdminCall) -> Json:
    with translated("racks"):
        node = await call.cluster.metadata.get(PATH)
    return {} if node is None else decode_json(node.value, "racks")


async def _change(call: AdminCall, changed: Callable[[Json], Json]) -> None:
    metadata = call.cluster.metadata

    def new(value: bytes) -> bytes:
        return encode_json(changed(decode_json(value, "racks")))

    with translated("racks"):
        try:
            await update_node(metadata, PATH, new)
        except NoNodeError:
            try:
                await metadata.create(PATH, new(b""), make_parents=True)
            except NodeExistsError:
                await update_node(metadata, PATH, new)

"""Network locations of bookies, and the rack map that Pulsar keeps in `/bookies`. Pure.

    location = /rack | /region/rack          unknown: /default-rack, or /default-region/default-rack with regions

    /bookies = {"group": {"host:3181": {"rack": "/rack or /region/rack", "hostname": "host"}}}          JSON

Source: BookKeeper's NetworkTopology, RegionAwareEnsemblePlacementPolicy; Pulsar's BookiesRackConfiguration,
BookieRackAffinityMapping.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from quire.metadata.errors import MalformedMetadataError

DEFAULT_RACK = "/default-rack"
DEFAULT_REGION_AND_RACK = "/default-region/default-rack"


def clean_location(text: str) -> str | None:
    """Return the location that an operator's text means; None if the text is empty.

    >>> clean_location("r1"), clean_location("/eu/r1/"), clean_location(" / ")
    ('/r1', '/eu/r1', None)
    """
    parts = [part for part in text.strip().split("/") if part]
    return "/" + "/".join(parts) if parts else None


def region_of(location: str) -> str:
    """Return the first part of a location. Without a region that is the rack, as in the original.

    >>> region_of("/eu/r1"), region_of("/r1")
    ('eu', 'r1')
    """
    return location.split("/", 2)[1]


@dataclass(frozen=True, slots=True)
class RackMap:
    """Racks assigned by operators."""

    racks: Mapping[str, str] = field(default_factory=dict)
    """Location by bookie id (in Pulsar's commands usually `host:port`)."""
    hosts: Mapping[str, str] = field(default_factory=dict)
    """Location by host, if all assignments for the host's bookies agree."""
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Ids of the bookies of each group."""

    def location(self, bookie_id: str, host: str | None = None, port: int | None = None) -> str | None:
        """Return the location of the bookie with that id at `host:port`; None if unassigned.

        An assignment of the bookie wins over one of another bookie on its host.
        """
        if bookie_id in self.racks:
            return self.racks[bookie_id]
        if host is None:
            return self.hosts.get(bookie_id.rpartition(":")[0])
        return self.racks.get(f"{host}:{port}") or self.hosts.get(host)


def decode_rack_map(data: bytes) -> RackMap:
    """Decode a rack map. MalformedMetadataError. Empty data is an empty map; entries without a rack are ignored.

    >>> decode_rack_map(b'{"default": {"bk1:3181": {"rack": "r1"}}}').location("bk1:3181")
    '/r1'
    """
    if not data:
        return RackMap()
    try:
        groups = json.loads(data)
        entries = [
            (bookie_id, info.get("rack") or "", info.get("hostname") or "")
            for group in groups.values()
            for bookie_id, info in group.items()
        ]
        located = [(each, clean_location(rack), host) for each, rack, host in entries]
        named = {str(name): frozenset(map(str, group)) for name, group in groups.items()}
    except (ValueError, AttributeError) as error:
        raise MalformedMetadataError(f"the rack map is not in Pulsar's format: {error}") from error
    racks = {bookie_id: rack for bookie_id, rack, _ in located if rack is not None}
    by_host: dict[str, list[str]] = {}
    for bookie_id, rack, host in located:
        if rack is not None:
            for name in dict.fromkeys([bookie_id.rpartition(":")[0], host]):
                by_host.setdefault(name, []).append(rack)
    hosts = {host: racks_of[0] for host, racks_of in by_host.items() if host and _all_equal(racks_of)}
    return RackMap(racks, hosts, named)


def _all_equal(values: Iterable[str]) -> bool:
    return len(dict.fromkeys(values)) == 1

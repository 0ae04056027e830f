"""The stored configuration of all brokers of a cluster, watched by each of them: the shell around DynamicConf.

    /admin/configuration        {"maxProducersPerTopic": "5"}: texts, by key

Source: Pulsar's BrokerService (the path, and when a value counts), BrokersBase.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from broker.dynamic.conf import DynamicConf
from broker.errors import MetadataRefusedError, translated
from broker.ownership.following import follow
from broker.ownership.values import decode_json, encode_json
from quire.metadata.errors import NodeExistsError, NoNodeError
from quire.metadata.store import MetadataStore
from quire.metadata.update_loop import update_node
from quire.service.errors import ConfigError
from quire.service.log import get_logger

log = get_logger(__name__)

PATH = "/admin/configuration"
WHAT = "the stored configuration of brokers"
RECHECK_S = 30.0
"""Interval at which the node is read again, because a watch may be late or missed."""


class DynamicConfiguration:
    """Stored configuration as one broker obeys it: `load` before its rooms are made, and `run` then."""

    def __init__(self, metadata: MetadataStore, conf: DynamicConf[Any]) -> None:
        self.conf = conf
        self.on_change: Callable[[frozenset[str]], None] = _ignore
        """Called with the keys whose values have changed, in the step in which they have."""
        self._metadata = metadata
        self._told: tuple[str, ...] = ()

    async def load(self) -> None:
        """Obey what is stored. Raises ConfigError (a value cannot be obeyed), MetadataError."""
        node = await self._metadata.get(PATH)
        try:
            found = self.conf.obey({} if node is None else _decode(node.value))
        except MetadataRefusedError as error:
            raise ConfigError(str(error)) from error
        if found.problems:
            raise ConfigError("\n".join(f"{PATH}: {each}" for each in found.problems))

    async def run(self) -> None:
        """Obey each change until cancelled."""
        await follow(self._metadata, PATH, self._look, recheck_s=RECHECK_S)

    async def _look(self) -> None:
        node = await self._metadata.get(PATH)
        try:
            found = self.conf.obey({} if node is None else _decode(node.value))
        except MetadataRefusedError as error:
            log.error("stored configuration not read", path=PATH, reason=str(error))
            return
        if found.problems and found.problems != self._told:
            log.error("stored configuration not obeyed", path=PATH, reason="; ".join(found.problems))
        self._told = found.problems
        if found.changed:
            log.info("configuration changed", keys=" ".join(sorted(found.changed)))
            self.on_change(found.changed)

    # For the admin API

    async def stored(self) -> dict[str, str]:
        """Return the stored values. Raises MetadataUnavailableError, MetadataRefusedError (of `broker.errors`)."""
        with translated(WHAT):
            node = await self._metadata.get(PATH)
        return {} if node is None else _decode(node.value)

    async def put(self, name: str, text: str) -> None:
        """Store a value, which this broker obeys when the call returns. Check it with `DynamicConf.refusal` before.
        Raises as `stored`."""
        await self._change(lambda values: {**values, name: text})

    async def delete(self, name: str) -> None:
        """Remove a value, so that the files' hold again. Raises as `stored`."""
        await self._change(lambda values: {key: text for key, text in values.items() if key != name})

    async def _change(self, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        def changed(value: bytes) -> bytes:
            return encode_json(change(_decode(value)))

        with translated(WHAT):
            try:
                await update_node(self._metadata, PATH, changed)
            except NoNodeError:
                try:
                    await self._metadata.create(PATH, changed(b""), make_parents=True)
                except NodeExistsError:
                    await update_node(self._metadata, PATH, changed)
            await self._look()


def _decode(value: bytes) -> dict[str, str]:
    return {name: each if isinstance(each, str) else str(each) for name, each in decode_json(value, WHAT).items()}


def _ignore(names: frozenset[str]) -> None:
    pass

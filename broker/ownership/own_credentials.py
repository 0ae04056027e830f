"""Credentials of this broker, for its calls to other brokers."""

from __future__ import annotations

from quire.client import commands
from quire.client.authentication import Credentials, CredentialsError
from quire.wire.pulsar.frames import encode
from quire.world.doors import Offload

CLIENT_NAME = "Quire broker"


class OwnCredentials:
    """Credentials of a broker, read when they are needed, in a thread: they may be in a file."""

    def __init__(self, credentials: Credentials, offload: Offload) -> None:
        self.credentials = credentials
        self._offload = offload

    async def headers(self) -> dict[str, str]:
        """Return the headers of a request. Raises OSError if the credentials cannot be read."""
        try:
            return await self._offload.run(self.credentials.headers, name="credentials")
        except CredentialsError as error:
            raise OSError(f"brokerClientAuthenticationParameters: {error}") from None

    async def connect(self) -> bytes:
        """Return CONNECT as a frame. Raises OSError as `headers`."""
        try:
            data = await self._offload.run(self.credentials.data, name="credentials")
        except CredentialsError as error:
            raise OSError(f"brokerClientAuthenticationParameters: {error}") from None
        return encode(commands.connect(CLIENT_NAME, "", self.credentials.method, data))

"""Apache Pulsar standalone with tokens, authorization and TLS, as a child process that can be killed and started again.

It has ports with TLS and without. Both need a token, and so does the REST interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.apache_standalone import KEYS, ApacheStandalone
from tests.interop.secured import Secured
from tests.support.credentials import token

ROLE = "admin"
"""A superuser."""


class SecuredStandalone(ApacheStandalone):
    """Use `secured_standalone`."""

    def __init__(self, folder: Path, conf: dict[str, object] | None = None) -> None:
        self._secured = Secured(folder)
        super().__init__(folder)
        self.port, self.web_port = self._secured.ports[:2]
        self.settings = {**KEYS, **self._secured.keys, "transactionCoordinatorEnabled": "false", **(conf or {})}
        self.token_file = folder / f"{ROLE}.token"
        self.token_file.write_text(token(ROLE))

    def options_of_clients(self, *, tls: bool) -> dict[str, str]:
        """Return the options of `format("quire")`: addresses, and paths of the files with credentials."""
        options = {"authTokenFile": str(self.token_file)}
        if not tls:
            return {"service.url": self.url, "admin.url": self.web, **options}
        trust = {"tlsTrustCertsFilePath": str(self._secured.authority.trust)}
        return {"service.url": self._secured.url, "admin.url": self._secured.web, **trust, **options}


@contextmanager
def secured_standalone(folder: Path, conf: dict[str, object] | None = None) -> Iterator[SecuredStandalone]:
    """Run a server; stop it at the end. Requests of `tests.support.web` need its token (`web.authorize`)."""
    server = SecuredStandalone(folder, conf)
    try:
        server.start()
        yield server
    finally:
        server.kill()

"""Check of commands before their handlers see them. Made only where authorization is on.

What is known in memory is decided in the pass. Otherwise the decision is awaited in the command's own task, and a
refusal is answered before anything else about the command is looked at: no topic is looked up or made, and no number of
partitions is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import trio

from broker.connections.connection import Connection
from broker.connections.permits.needs import KEPT_BY_TYPE, needs_of, transaction_of
from broker.errors import AuthorizationError, BrokerError
from broker.security.authorization.authorizer import Authorizer
from broker.security.authorization.permissions import Need, Permission
from broker.security.roles import acting_role
from broker.transactions.errors import TransactionNotFoundError
from broker.transactions.txn_id import TxnId
from quire.wire.pulsar import PulsarApi_pb2 as pb

NEEDS_IN_PASS: Final = 4
"""Needs of one command that are decided in the pass; one with more waits for a task."""
NEEDS_IN_STEP: Final = 200
"""Needs that are decided before other tasks run: about 2 ms."""

Owner = Callable[[TxnId], str | None]


class Guard:
    """Checks of the commands of all connections."""

    def __init__(self, authorizer: Authorizer, owner_of: Owner) -> None:
        """`owner_of`: returns the owner of a transaction; "" if it has none, None if this broker has no transactions.
        BrokerError if it is not known here: it may be opened before its command is handled, so it is refused here."""
        self._authorizer = authorizer
        self._owner_of = owner_of

    def passes(self, connection: Connection, command: pb.BaseCommand) -> bool | None:
        """Return whether a command may go to its handler; False: a refusal was answered; None: it has to be
        awaited."""
        try:
            for count, need in enumerate(needs_of(connection, command), 1):
                if count > NEEDS_IN_PASS or self._decided(connection, command, need) is None:
                    return None
            return True
        except BrokerError as error:
            connection.answer_failure(command, error)
            return False

    async def check(self, connection: Connection, command: pb.BaseCommand) -> None:
        """Raise AuthorizationError, TransactionNotFoundError if the command is not permitted; ServiceNotReadyError if
        this cannot be decided now."""
        for count, need in enumerate(needs_of(connection, command), 1):
            if self._decided(connection, command, need) is None:
                user = connection if command.type in KEPT_BY_TYPE else None
                await self._authorizer.require(connection.principal, need, user)
            if not count % NEEDS_IN_STEP:
                await trio.lowlevel.checkpoint()

    def _decided(self, connection: Connection, command: pb.BaseCommand, need: Need) -> bool | None:
        """Return True if it is permitted, None if something has to be read. Raises as `check`."""
        if need.permission is Permission.TRANSACTION_OWNER:
            return self._owns(connection, command, need)
        user = connection if command.type in KEPT_BY_TYPE else None
        decision = self._authorizer.at_once(connection.principal, need, user)
        if decision is None:
            return None
        self._authorizer.judge(need, decision)
        return True

    def _owns(self, connection: Connection, command: pb.BaseCommand, need: Need) -> bool:
        """Return True for the owner of a transaction and for super users. Raises TransactionNotFoundError, as for one
        that does not exist."""
        any_role = need._replace(permission=Permission.ANY_ROLE)
        has_role = self._authorizer.at_once(connection.principal, any_role)
        assert has_role is not None, "a role needs no facts"
        self._authorizer.judge(need, has_role)
        txn = transaction_of(command)
        owner = None if txn is None else self._owner_of(txn)
        if not owner or owner == acting_role(connection.principal):
            return True
        decision = self._authorizer.at_once(connection.principal, need)
        assert decision is not None, "super users need no facts"
        try:
            self._authorizer.judge(need, decision)
        except AuthorizationError as error:
            raise TransactionNotFoundError(f"there is no transaction {txn}, or it is over") from error
        return True

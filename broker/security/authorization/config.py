"""Settings of authorization; names and defaults of the keys are Pulsar's."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import conf_key


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationOptions:
    """Settings of one broker."""

    enabled: bool = conf_key(
        "authorizationEnabled",
        False,
        doc="true: each command and each call of the admin REST needs a permission, as docs/security.md lists them.",
    )
    super_users: tuple[str, ...] = conf_key(
        "superUserRoles",
        (),
        dynamic=True,
        doc="Roles that may do everything. Brokers of a cluster need one for each other.",
    )
    proxies: tuple[str, ...] = conf_key(
        "proxyRoles",
        (),
        doc="Roles of proxies. What they ask for needs a permission of theirs, and the same of the client behind them.",
    )
    wildcards: bool = conf_key(
        "authorizationAllowWildcardsMatching",
        False,
        doc="true: a role in a grant may begin or end with *, which stands for any text.",
    )
    grants_on_missing_topics: bool = conf_key(
        "allowAclChangesOnNonExistentTopics",
        False,
        doc="true: permissions of a topic are read and changed whether or not the topic exists.",
    )

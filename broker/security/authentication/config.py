"""Keys of authentication. Names and defaults are Pulsar's."""

from __future__ import annotations

from dataclasses import dataclass

from quire.service.config import SECONDS, conf_key

PROVIDERS = (
    "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
    "org.apache.pulsar.broker.authentication.AuthenticationProviderBasic",
    "org.apache.pulsar.broker.authentication.AuthenticationProviderTls",
    "org.apache.pulsar.broker.authentication.oidc.AuthenticationProviderOpenID",
)
"""Classes of the original that there is a provider for."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class AuthenticationOptions:
    """Authentication of clients, and this broker's own credentials. Values that may be secrets are not in its repr."""

    enabled: bool = conf_key("authenticationEnabled", False, doc="true: clients and requests must prove their role.")
    providers: tuple[str, ...] = conf_key(
        "authenticationProviders",
        (),
        doc="Ways to do so, as the original's classes, with commas: AuthenticationProviderToken, "
        "AuthenticationProviderBasic and AuthenticationProviderTls of org.apache.pulsar.broker.authentication, and "
        "AuthenticationProviderOpenID of its package oidc.",
    )
    anonymous_role: str = conf_key(
        "anonymousUserRole",
        "",
        doc="Role of clients that name no method of authenticationProviders. Empty: they are refused.",
    )
    verify_original: bool = conf_key(
        "authenticateOriginalAuthData",
        False,
        doc="true: a proxy must forward the credentials of its client, which are checked too.",
    )
    refresh_check_s: int = conf_key(
        "authenticationRefreshCheckSeconds",
        60,
        unit=SECONDS,
        minimum=1,
        doc="Seconds between two looks for connections whose credentials have expired. Clients that can are asked for "
        "newer ones, other connections are closed.",
    )
    authenticate_metrics: bool = conf_key(
        "authenticateMetricsEndpoint", False, doc="true: /metrics needs credentials too, where clients need them."
    )
    token_secret_key: str = conf_key(
        "tokenSecretKey",
        "",
        doc="Secret with which tokens are signed: file:///path, data:;base64,..., a path, or base64.",
    )
    token_public_key: str = conf_key(
        "tokenPublicKey", "", doc="Public key of the key with which tokens are signed, written as tokenSecretKey is."
    )
    token_public_algorithm: str = conf_key(
        "tokenPublicAlg",
        "RS256",
        choices=("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512"),
        doc="Algorithm of tokenPublicKey: it names the kind of the key.",
    )
    token_key_set: str = conf_key(
        "quireTokenKeySet",
        "",
        doc="JSON Web Key Set with the public keys of tokens, written as tokenSecretKey is.",
    )
    token_role_claim: str = conf_key("tokenAuthClaim", "sub", doc="Claim of a token that has the role.")
    token_audience_claim: str = conf_key(
        "tokenAudienceClaim", "", doc="Claim of a token that has its audience. Empty: it is not checked."
    )
    token_audience: str = conf_key("tokenAudience", "", doc="Audience that a token must have in tokenAudienceClaim.")
    token_skew_s: int = conf_key(
        "tokenAllowedClockSkewSeconds",
        0,
        unit=SECONDS,
        minimum=0,
        doc="Seconds that a token is taken before it is valid, and after it has expired.",
    )
    users: str = conf_key(
        "basicAuthConf",
        "",
        doc="Users of AuthenticationProviderBasic: an htpasswd file (-m or -d), written as tokenSecretKey is.",
    )
    openid_issuers: tuple[str, ...] = conf_key(
        "openIDAllowedTokenIssuers", (), doc="Issuers of OpenID Connect whose tokens are taken, with commas."
    )
    openid_key_sets: tuple[str, ...] = conf_key(
        "quireOpenIDKeySets",
        (),
        doc="File with the JSON Web Key Set of each of these issuers, as issuer=path, with commas. Keys are not "
        "fetched.",
    )
    openid_audiences: tuple[str, ...] = conf_key(
        "openIDAllowedAudiences", (), doc="Audiences that tokens of these issuers may have."
    )
    openid_role_claim: str = conf_key("openIDRoleClaim", "sub", doc="Claim with the role in tokens of these issuers.")
    openid_skew_s: int = conf_key(
        "openIDAcceptedTimeLeewaySeconds",
        0,
        unit=SECONDS,
        minimum=0,
        doc="As tokenAllowedClockSkewSeconds, for tokens of these issuers.",
    )
    failures_per_address_max: int = conf_key(
        "quireFailedLoginsPerAddressPerMinute",
        600,
        minimum=0,
        doc="Different wrong credentials of one address in a minute, above which others of it are refused unchecked "
        "until the minute is over, unless they were right before. 0: no limit.",
    )
    client_plugin: str = conf_key(
        "brokerClientAuthenticationPlugin",
        "",
        doc="How this broker authenticates itself to others: AuthenticationToken, AuthenticationBasic or "
        "AuthenticationTls of org.apache.pulsar.client.impl.auth. Empty: not at all.",
    )
    client_parameters: str = conf_key(
        "brokerClientAuthenticationParameters",
        "",
        doc="Its credentials: token:..., file:///path of a token, or the JSON that the class of the original takes. A "
        "file keeps them out of this one.",
    )

    def __repr__(self) -> str:
        """Return the values that are no secrets."""
        return f"AuthenticationOptions(enabled={self.enabled}, providers={self.providers}, ...)"

"""Authentication as the configuration asks for it. Reads the files that it names.

A provider that does not exist here, or lacks its keys, ends the start: a broker that was to be secured must not serve
without. Errors name the key, and never its value, unless that is a name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from broker.security.authentication.authentication import Authentication
from broker.security.authentication.basic import BasicProvider
from broker.security.authentication.certificates import CertificateProvider
from broker.security.authentication.config import PROVIDERS, AuthenticationOptions
from broker.security.authentication.credentials import Provider
from broker.security.authentication.keys import check_algorithm, public_key, read_value
from broker.security.authentication.signed import VerifyingKey, key_set, public, secret
from broker.security.authentication.tokens import OpenIdProvider, TokenProvider
from quire.service.errors import ConfigError
from quire.service.password_files import read_users


def load(options: AuthenticationOptions, proxies: Iterable[str] = ()) -> Authentication:
    """Make the authentication of enabled `options`. `proxies`: proxyRoles. Raises ConfigError."""
    if not options.providers:
        raise ConfigError(f"authenticationProviders: must name a provider with authenticationEnabled=true: {_known()}")
    providers: list[Provider] = []
    for name in dict.fromkeys(options.providers):
        make = _MAKERS.get(name)
        if make is None:
            raise ConfigError(f"authenticationProviders: there is no {name}, only {_known()}")
        providers.append(make(options))
    return Authentication(
        providers,
        anonymous_role=options.anonymous_role.strip(),
        proxy_roles=frozenset(proxies),
        verify_original=options.verify_original,
        refresh_check_s=options.refresh_check_s,
        failures_max=options.failures_per_address_max,
    )


def _known() -> str:
    return ", ".join(PROVIDERS)


def _read(key: str, text: str) -> bytes:
    try:
        return read_value(text)
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None


def _tokens(options: AuthenticationOptions) -> Provider:
    given = {
        "tokenSecretKey": options.token_secret_key.strip(),
        "tokenPublicKey": options.token_public_key.strip(),
        "quireTokenKeySet": options.token_key_set.strip(),
    }
    named = [name for name, value in given.items() if value]
    if len(named) != 1:
        found = f"{' and '.join(named)} are set" if named else "none is set"
        raise ConfigError(
            f"authenticationProviders: AuthenticationProviderToken needs one of {', '.join(given)}: {found}"
        )
    [name] = named
    if bool(options.token_audience_claim) != bool(options.token_audience):
        raise ConfigError("tokenAudienceClaim: the audience is checked only if both it and tokenAudience are set")
    data = _read(name, given[name])
    try:
        keys: tuple[VerifyingKey, ...]
        if name == "tokenSecretKey":
            keys = (secret(data),)
        elif name == "tokenPublicKey":
            key = public_key(data)
            check_algorithm(options.token_public_algorithm, key)
            keys = (public(key),)
        else:
            keys = key_set(data)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    return TokenProvider(
        keys,
        options.token_role_claim or "sub",
        options.token_audience_claim,
        options.token_audience,
        float(options.token_skew_s),
    )


def _open_id(options: AuthenticationOptions) -> Provider:
    issuers = options.openid_issuers
    if not issuers:
        raise ConfigError("openIDAllowedTokenIssuers: AuthenticationProviderOpenID needs at least one issuer")
    if not options.openid_audiences:
        raise ConfigError("openIDAllowedAudiences: AuthenticationProviderOpenID needs at least one audience")
    files: dict[str, str] = {}
    for pair in options.openid_key_sets:
        issuer = next((each for each in issuers if pair.startswith(f"{each}=")), None)
        if issuer is None:
            raise ConfigError("quireOpenIDKeySets: each is issuer=path, with an issuer of openIDAllowedTokenIssuers")
        files[issuer] = pair.removeprefix(f"{issuer}=")
    keys = {}
    for issuer in issuers:
        if issuer not in files:
            raise ConfigError(
                f"openIDAllowedTokenIssuers: the keys of {issuer} are not fetched over the network; save its JSON Web "
                "Key Set in a file and name it in quireOpenIDKeySets"
            )
        try:
            keys[issuer] = key_set(_read("quireOpenIDKeySets", files[issuer]))
        except ValueError as error:
            raise ConfigError(f"quireOpenIDKeySets: {issuer}: {error}") from None
    return OpenIdProvider(
        keys, frozenset(options.openid_audiences), options.openid_role_claim or "sub", float(options.openid_skew_s)
    )


def _basic(options: AuthenticationOptions) -> Provider:
    if not options.users.strip():
        raise ConfigError("basicAuthConf: AuthenticationProviderBasic needs a file of users")
    try:
        return BasicProvider(read_users(_read("basicAuthConf", options.users)))
    except ValueError as error:
        raise ConfigError(f"basicAuthConf: {error}") from None


def _certificates(options: AuthenticationOptions) -> Provider:
    return CertificateProvider()


_MAKERS: dict[str, Callable[[AuthenticationOptions], Provider]] = dict(
    zip(PROVIDERS, (_tokens, _basic, _certificates, _open_id), strict=True)
)

"""Which authorization server issues tokens for an MCP server, and where it does.

It follows the chapter on authorization of MCP's specification: the metadata of the protected
resource (RFC 9728), and that of its authorization server (RFC 8414, or OpenID Connect Discovery).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, cast

from pydantic import BaseModel, ValidationError

from perdure.oauth.failures import OAuthError
from perdure.oauth.fetching import OK, Fetched, asked_of, check_named_url
from perdure.text import one_line, quoted

if TYPE_CHECKING:
    from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata

_UNAUTHORIZED = 401
_SERVER_ERROR = 500
_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
"""A request that begins nothing on a server that needs no token."""
_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True)
class Protected:
    """What an MCP server says of its protection.

    Attributes:
        resource: What tokens have to be for.
        issuer: The identifier of its authorization server.
        scopes: The scopes to ask for.
    """

    resource: str
    issuer: str
    scopes: Sequence[str]


@dataclass(frozen=True)
class AuthorizationServer:
    """An authorization server that a login can use.

    Attributes:
        issuer: Its identifier.
        authorization_endpoint: Where people log in.
        token_endpoint: Where it issues tokens.
        registration_endpoint: Where clients register; empty if they cannot.
        client_auths: The ways in which clients say who they are; None if it does not say.
        scopes: The scopes that it lists.
        names_itself: Whether its redirects have `iss` (RFC 9207).
    """

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    registration_endpoint: str
    client_auths: Sequence[str] | None
    scopes: Sequence[str]
    names_itself: bool


async def protection_of(server: str) -> Protected:
    """Return what an MCP server says of its protection.

    Raises:
        OAuthError: It cannot be read, says nothing, or is that of another server.
    """
    from mcp.client.auth.utils import (
        build_protected_resource_metadata_discovery_urls,
        extract_field_from_www_auth,
    )
    from mcp.shared.auth import ProtectedResourceMetadata

    refusal = await asked_of("POST", server, max_bytes=0, json=_PING)
    named = scope = None
    if refusal.status == _UNAUTHORIZED:  # the SDK's types are those of its own HTTP client
        named = extract_field_from_www_auth(cast("Any", refusal), "resource_metadata")
        scope = extract_field_from_www_auth(cast("Any", refusal), "scope")
    urls = build_protected_resource_metadata_discovery_urls(named, server)
    document = await _first_of(urls, server, f"the MCP server {server} does not say who logs in")
    metadata = _parsed(document, ProtectedResourceMetadata)
    _check_resource(metadata, server, document.url)
    issuer = str(document.body["authorization_servers"][0])  # as written: it is compared as text
    check_named_url(issuer, f"the authorization server of {server}", server)
    scopes = metadata.scopes_supported or [] if scope is None else scope.split()
    return Protected(str(metadata.resource), issuer, scopes)


def _check_resource(metadata: ProtectedResourceMetadata, server: str, url: str) -> None:
    """Check that tokens are for this server (RFC 9728, 3.3).

    An address above that of the server stands for it as well, as for all clients of MCP.

    Raises:
        OAuthError: They are for another one, which could then be called with them.
    """
    from mcp.shared.auth_utils import check_resource_allowed

    named = str(metadata.resource)
    if not check_resource_allowed(requested_resource=server, configured_resource=named):
        raise OAuthError(f"the document at {url} is that of {quoted(named)}, not of {server}")


async def server_of(issuer: str) -> AuthorizationServer:
    """Return the authorization server of an identifier.

    Raises:
        OAuthError: Its metadata cannot be read, is that of another one, or lacks what is needed.
    """
    from mcp.client.auth.utils import (
        build_oauth_authorization_server_metadata_discovery_urls,
        issuers_match,
    )
    from mcp.shared.auth import OAuthMetadata

    urls = build_oauth_authorization_server_metadata_discovery_urls(issuer, issuer)
    document = await _first_of(urls, issuer, f"the authorization server {issuer} has no metadata")
    metadata = _parsed(document, OAuthMetadata)
    named = str(document.body["issuer"])
    if not issuers_match(named, issuer):
        raise OAuthError(
            f"the document at {document.url} is that of the issuer {quoted(one_line(named, 300))},"
            f" not of {issuer}"
        )
    _check_pkce(metadata, issuer)
    return AuthorizationServer(
        named,
        _endpoint(document.body, "authorization_endpoint", issuer),
        _endpoint(document.body, "token_endpoint", issuer),
        _endpoint(document.body, "registration_endpoint", issuer)
        if metadata.registration_endpoint
        else "",
        metadata.token_endpoint_auth_methods_supported,
        metadata.scopes_supported or [],
        bool(metadata.authorization_response_iss_parameter_supported),
    )


def _check_pkce(metadata: OAuthMetadata, issuer: str) -> None:
    """Check that a code that was stolen would be of no use.

    Raises:
        OAuthError: The server does not say so, and MCP's specification has clients stop then.
    """
    if "S256" not in (metadata.code_challenge_methods_supported or []):
        raise OAuthError(
            f"the authorization server {issuer} does not list S256 in"
            " code_challenge_methods_supported, so its codes are not protected (PKCE)"
        )


def _endpoint(document: Mapping[str, Any], name: str, issuer: str) -> str:
    url = str(document[name])
    check_named_url(url, f"{name} of {issuer}", issuer)
    return url


async def _first_of(urls: Sequence[str], named_by: str, otherwise: str) -> Fetched:
    """Return the first document of these addresses that is there.

    Raises:
        OAuthError: None is, or the server does not work.
    """
    statuses = []
    for url in urls:
        check_named_url(url, "the address of the metadata", named_by)
        answer = await asked_of("GET", url)
        if answer.status == OK:
            return answer
        if answer.status >= _SERVER_ERROR:
            raise OAuthError(f"{url} answers {answer.status}")
        statuses.append(f"{url} answers {answer.status}")
    raise OAuthError(f"{otherwise}: {', '.join(statuses)}")


def _parsed(document: Fetched, model: type[_Model]) -> _Model:
    """Return a document as a model of the SDK.

    Raises:
        OAuthError: It is none.
    """
    try:
        return model.model_validate(document.body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "it"
        raise OAuthError(
            f"the document at {document.url} is not valid: {place}: {first['msg']}"
        ) from None

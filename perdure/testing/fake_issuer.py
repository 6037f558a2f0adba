"""A fake identity provider on loopback, for tests of gateways and of what calls them.

It has metadata (OpenID Connect, RFC 8414), keys that rotate, access tokens (RFC 9068) for the
resource that a client names (RFC 8707), a login by authorization code with PKCE, and registration
of clients. The scope `offline_access` brings refresh tokens, which rotate; an old one that is used
again revokes all tokens of its login. Nobody is asked for a password: who logs in is what the test
says. It needs `perdure[http]`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from perdure.testing.loopback import LoopbackServer, Quiet

Algorithm = Literal["RS256", "ES256"]
_OFFLINE = "offline_access"
_LIFETIME_S = 300


class FakeIssuer(LoopbackServer):
    """An identity provider during its `with` block.

    Args:
        path: What its identifier has after the port, such as `/realms/test`.
        port: The port; 0 for any free one.
        algorithm: That of its first key.

    Attributes:
        url: Its identifier, once started.
        person: The claims of the person who logs in next, `sub` among them; None for somebody who
            declines.
        audience: For whom the access tokens of a login are, if the client names no resource.
        secrets: The secrets of clients, by their ids. Other clients are public.
        metadata: What its metadata has besides, or instead; None leaves something out.
        lifetime_s: How long an access token of a login is valid.
        replies: Answers that replace its own, by path: a status and a body.
        requests: The paths of the requests that it has got.
    """

    def __init__(self, path: str = "", *, port: int = 0, algorithm: Algorithm = "RS256") -> None:
        super().__init__(_IssuerHandler, port)
        self.url = ""
        self.person: Mapping[str, Any] | None = {"sub": "anna"}
        self.audience = "perdure"
        self.secrets: dict[str, str] = {}
        self.replies: dict[str, tuple[int, bytes]] = {}
        self.requests: list[str] = []
        self.metadata: dict[str, Any] = {}
        self.lifetime_s = _LIFETIME_S
        self._path = path
        self._keys: list[_IssuerKey] = []
        self._codes: dict[str, Mapping[str, Any]] = {}
        self._redirects: dict[str, Sequence[str]] = {}
        self._issued: dict[str, _Grant] = {}
        self._refreshable: dict[str, _Grant] = {}
        self._lock = threading.Lock()
        self.rotate(algorithm)

    def _started(self, address: str) -> None:
        self.url = f"{address}{self._path}"

    @property
    def jwks(self) -> dict[str, Any]:
        """Its public keys."""
        return {"keys": [key.public for key in self._keys]}

    def rotate(self, algorithm: Algorithm = "RS256", *, keep: bool = True) -> None:
        """Sign with a new key from now on. Without `keep`, the old ones are no longer published."""
        key = _IssuerKey(algorithm)
        self._keys = [*(self._keys if keep else []), key]

    def token(self, **claims: Any) -> str:
        """Return an access token for `audience`, valid for five minutes.

        Args:
            claims: Claims besides those that every token has, or instead of them; None leaves a
                claim out.
        """
        return self.signed({"aud": self.audience, "client_id": "test", **claims})

    def signed(self, claims: Mapping[str, Any], typ: str = "at+jwt") -> str:
        """Return a token of any type with these claims, and those that every token has."""
        now = int(time.time())
        complete = {
            "iss": self.url,
            "sub": "anna",
            "iat": now,
            "exp": now + _LIFETIME_S,
            "jti": secrets.token_urlsafe(8),
            **claims,
        }
        present = {name: value for name, value in complete.items() if value is not None}
        return self._keys[-1].sign(present, typ)

    def revoke(self, subject: str) -> None:
        """Revoke all tokens that a person has got by logins until now."""
        for grant in [*self._issued.values()]:
            if grant.person["sub"] == subject:
                grant.is_revoked = True

    def is_revoked(self, access_token: str) -> bool:
        """Return whether an access token of a login was revoked before its end."""
        grant = self._issued.get(access_token)
        return grant is not None and grant.is_revoked

    def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Return the status, headers and body of the answer to a request."""
        self.requests.append(path)
        if path in self.replies:
            status, body = self.replies[path]
            return status, {"content-type": "application/json"}, body
        if method == "GET" and path in self._documents:
            return _json(200, self._document())
        match method, path.removeprefix(self._path):
            case "GET", "/jwks":
                return _json(200, self.jwks)
            case "GET", "/authorize":
                return self._authorize(query)
            case "POST", "/token":
                with self._lock:
                    return self._grant(query, headers)
            case "GET", "/userinfo":
                return self._describe(headers.get("authorization", ""))
            case "POST", "/register":
                return self._register(query)
        return _json(404, {"error": "not_found"})

    @property
    def _documents(self) -> Sequence[str]:
        """Where its metadata is: for OpenID Connect, and as RFC 8414 has it."""
        return (
            f"{self._path}/.well-known/openid-configuration",
            f"/.well-known/openid-configuration{self._path}",
            f"/.well-known/oauth-authorization-server{self._path}",
        )

    def _document(self) -> dict[str, Any]:
        complete = {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/jwks",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "registration_endpoint": f"{self.url}/register",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "scopes_supported": ["openid", "profile", "email", _OFFLINE],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": [
                *("none", "client_secret_basic", "client_secret_post"),
            ],
            "authorization_response_iss_parameter_supported": True,
            **self.metadata,
        }
        return {name: value for name, value in complete.items() if value is not None}

    def _register(self, wanted: Mapping[str, Any]) -> tuple[int, dict[str, str], bytes]:
        """Register a client, with a secret if it wants to say with one who it is."""
        name, method = secrets.token_urlsafe(8), wanted.get("token_endpoint_auth_method", "none")
        client = {**wanted, "client_id": name, "token_endpoint_auth_method": method}
        if method != "none":
            self.secrets[name] = client["client_secret"] = secrets.token_urlsafe()
        self._redirects[name] = wanted.get("redirect_uris", ())
        return _json(201, client)

    def _authorize(self, query: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        """Send the browser back with a code, or with the refusal of somebody who declines."""
        wanted = {"client_id", "redirect_uri", "code_challenge"}
        if not wanted <= query.keys() or query.get("code_challenge_method") != "S256":
            return _json(400, {"error": "invalid_request"})
        redirect = query["redirect_uri"]
        if redirect not in self._redirects.get(query["client_id"], [redirect]):
            return _json(400, {"error": "invalid_redirect_uri"})
        answer = {"iss": self.url, "state": query.get("state", "")}
        if self.person is None:
            answer |= {"error": "access_denied", "error_description": "the person declined"}
        else:
            code = secrets.token_urlsafe()
            self._codes[code] = {**query, "person": dict(self.person)}
            answer["code"] = code
        joint = "&" if "?" in redirect else "?"
        return 302, {"location": f"{redirect}{joint}{urlencode(answer)}"}, b""

    def _grant(
        self, form: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Return tokens for a code or for a refresh token."""
        client, secret = _credentials(form, headers)
        if self.secrets.get(client, "") != secret:
            return _json(401, {"error": "invalid_client"})
        match form.get("grant_type"):
            case "authorization_code":
                return self._exchange(form, client)
            case "refresh_token":
                return self._refresh(form, client)
        return _json(400, {"error": "unsupported_grant_type"})

    def _exchange(self, form: Mapping[str, str], client: str) -> tuple[int, dict[str, str], bytes]:
        """Return the tokens for a code, which is taken once, with its verifier."""
        login = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if (
            login is None
            or login["client_id"] != client
            or login["redirect_uri"] != form.get("redirect_uri")
            or login["code_challenge"] != base64.urlsafe_b64encode(digest).decode().rstrip("=")
        ):
            return _json(400, {"error": "invalid_grant", "error_description": "no such code"})
        resource = login.get("resource") or form.get("resource") or self.audience
        grant = _Grant(client, login["person"], resource, login.get("scope", ""))
        claims = {"sub": grant.person["sub"], "aud": client, "nonce": login.get("nonce")}
        return self._tokens(grant, form, id_token=self.signed(claims, "JWT"))

    def _refresh(self, form: Mapping[str, str], client: str) -> tuple[int, dict[str, str], bytes]:
        """Return the next tokens of a login. A refresh token that comes again revokes them all."""
        token = form.get("refresh_token", "")
        grant = self._refreshable.get(token)
        if grant is None or grant.client != client:
            return _json(400, {"error": "invalid_grant", "error_description": "no such token"})
        grant.is_revoked |= token != grant.refresh_token
        if grant.is_revoked:
            return _json(400, {"error": "invalid_grant", "error_description": "it was revoked"})
        return self._tokens(grant, form)

    def _tokens(
        self, grant: _Grant, form: Mapping[str, str], **more: str
    ) -> tuple[int, dict[str, str], bytes]:
        if form.get("resource", grant.resource) != grant.resource:
            return _json(400, {"error": "invalid_target"})
        ends = int(time.time()) + self.lifetime_s
        claims = {"aud": grant.resource, "client_id": grant.client, "scope": grant.scope or None}
        access = self.token(**{**grant.person, **claims, "exp": ends})
        self._issued[access] = grant
        if _OFFLINE in grant.scope.split():
            grant.refresh_token = more["refresh_token"] = secrets.token_urlsafe()
            self._refreshable[grant.refresh_token] = grant
        return _json(
            200,
            {
                "access_token": access,
                "token_type": "Bearer",
                "expires_in": self.lifetime_s,
                "scope": grant.scope,
                **more,
            },
        )

    def _describe(self, authorization: str) -> tuple[int, dict[str, str], bytes]:
        """Return the claims of the person of an access token."""
        grant = self._issued.get(authorization.removeprefix("Bearer "))
        if grant is None or grant.is_revoked:
            return _json(401, {"error": "invalid_token"})
        return _json(200, grant.person)


@dataclass
class _Grant:
    """What a person has granted to a client by a login."""

    client: str
    person: Mapping[str, Any]
    resource: str
    scope: str
    refresh_token: str = ""
    is_revoked: bool = False


class _IssuerKey:
    """A key that signs tokens."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self._id = secrets.token_urlsafe(8)
        self._private: Any
        if algorithm == "RS256":
            self._private = rsa.generate_private_key(65537, 2048)
        else:
            self._private = ec.generate_private_key(ec.SECP256R1())
        implementation: Any = jwt.get_algorithm_by_name(algorithm)
        written = implementation.to_jwk(self._private.public_key(), as_dict=True)
        self.public = {**written, "kid": self._id, "use": "sig", "alg": algorithm}

    def sign(self, claims: Mapping[str, Any], typ: str) -> str:
        headers = {"kid": self._id, "typ": typ}
        return jwt.encode(dict(claims), self._private, self._algorithm, headers)


def _credentials(form: Mapping[str, str], headers: Mapping[str, str]) -> tuple[str, str]:
    """Return the id and the secret of a client."""
    scheme, _, encoded = headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return form.get("client_id", ""), form.get("client_secret", "")
    client, _, secret = base64.b64decode(encoded).decode().partition(":")
    return unquote(client), unquote(secret)


def _json(status: int, body: Any) -> tuple[int, dict[str, str], bytes]:
    return status, {"content-type": "application/json"}, json.dumps(body).encode()


class _IssuerHandler(Quiet, BaseHTTPRequestHandler):
    service: FakeIssuer

    def do_GET(self) -> None:
        self._reply(dict(parse_qsl(urlsplit(self.path).query)))

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        is_json = self.headers.get("content-type", "").startswith("application/json")
        self._reply(json.loads(content) if is_json else dict(parse_qsl(content)))

    def _reply(self, values: Mapping[str, str]) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, fields, body = self.service.answer(
            self.command, urlsplit(self.path).path, values, headers
        )
        with contextlib.suppress(ConnectionError):  # a caller may not read all of a large answer
            self.send_response(status)
            for name, value in {**fields, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

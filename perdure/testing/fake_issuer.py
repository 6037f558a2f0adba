"""A fake identity provider on loopback, for tests of gateways and of what calls them.

It has a discovery document, keys that rotate, access tokens (RFC 9068), a login by authorization
code with PKCE, and registration of clients. Nobody is asked for a password: who logs in is what the
test says. It needs `perdure[http]`.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

Algorithm = Literal["RS256", "ES256"]
_POLL_S = 0.02
_LIFETIME_S = 300


class FakeIssuer:
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
        replies: Answers that replace its own, by path: a status and a body.
        requests: The paths of the requests that it has got.
    """

    def __init__(self, path: str = "", *, port: int = 0, algorithm: Algorithm = "RS256") -> None:
        self.url = ""
        self.person: Mapping[str, Any] | None = {"sub": "anna"}
        self.audience = "perdure"
        self.secrets: dict[str, str] = {}
        self.replies: dict[str, tuple[int, bytes]] = {}
        self.requests: list[str] = []
        self._path, self._port = path, port
        self._keys: list[_IssuerKey] = []
        self._codes: dict[str, Mapping[str, Any]] = {}
        self._people: dict[str, Mapping[str, Any]] = {}
        self._stack = contextlib.ExitStack()
        self.rotate(algorithm)

    def __enter__(self) -> Self:
        server = self._stack.enter_context(_IssuerServer(self, self._port))
        thread = threading.Thread(
            target=server.serve_forever, args=(_POLL_S,), name="perdure-fake-issuer", daemon=True
        )
        thread.start()
        self._stack.callback(thread.join)
        self._stack.callback(server.shutdown)
        self.url = f"http://127.0.0.1:{server.server_port}{self._path}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

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

    def answer(
        self, method: str, path: str, query: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Return the status, headers and body of the answer to a request."""
        self.requests.append(path)
        if path in self.replies:
            status, body = self.replies[path]
            return status, {"content-type": "application/json"}, body
        match method, path.removeprefix(self._path):
            case "GET", "/.well-known/openid-configuration":
                return _json(200, self._document())
            case "GET", "/jwks":
                return _json(200, self.jwks)
            case "GET", "/authorize":
                return self._authorize(query)
            case "POST", "/token":
                return self._exchange(query, headers)
            case "GET", "/userinfo":
                person = self._people.get(headers.get("authorization", ""))
                return (
                    _json(401, {"error": "invalid_token"}) if person is None else _json(200, person)
                )
            case "POST", "/register":
                client = {
                    "client_id": secrets.token_urlsafe(8),
                    "token_endpoint_auth_method": "none",
                }
                return _json(201, {**query, **client})
        return _json(404, {"error": "not_found"})

    def _document(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/jwks",
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "registration_endpoint": f"{self.url}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
        }

    def _authorize(self, query: Mapping[str, str]) -> tuple[int, dict[str, str], bytes]:
        """Send the browser back with a code, or with the refusal of somebody who declines."""
        wanted = {"client_id", "redirect_uri", "code_challenge"}
        if not wanted <= query.keys() or query.get("code_challenge_method") != "S256":
            return _json(400, {"error": "invalid_request"})
        answer = {"iss": self.url, "state": query.get("state", "")}
        if self.person is None:
            answer |= {"error": "access_denied", "error_description": "the person declined"}
        else:
            code = secrets.token_urlsafe()
            self._codes[code] = {**query, "person": dict(self.person)}
            answer["code"] = code
        joint = "&" if "?" in query["redirect_uri"] else "?"
        location = f"{query['redirect_uri']}{joint}{urlencode(answer)}"
        return 302, {"location": location}, b""

    def _exchange(
        self, form: Mapping[str, str], headers: Mapping[str, str]
    ) -> tuple[int, dict[str, str], bytes]:
        """Return the tokens for a code, which is taken once, with its verifier."""
        client, secret = _credentials(form, headers)
        login = self._codes.pop(form.get("code", ""), None)
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        if self.secrets.get(client, "") != secret:
            return _json(401, {"error": "invalid_client"})
        if (
            login is None
            or login["client_id"] != client
            or login["redirect_uri"] != form.get("redirect_uri")
            or login["code_challenge"] != base64.urlsafe_b64encode(digest).decode().rstrip("=")
        ):
            return _json(400, {"error": "invalid_grant", "error_description": "no such code"})
        person = login["person"]
        audience = form.get("resource") or login.get("resource") or self.audience
        access = self.token(**{**person, "aud": audience, "client_id": client})
        self._people[f"Bearer {access}"] = person
        nonce = login.get("nonce")
        identity = self.signed({"sub": person["sub"], "aud": client, "nonce": nonce}, "JWT")
        return _json(
            200,
            {
                "access_token": access,
                "id_token": identity,
                "token_type": "Bearer",
                "expires_in": _LIFETIME_S,
            },
        )


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


class _IssuerServer(ThreadingHTTPServer):
    def __init__(self, issuer: FakeIssuer, port: int) -> None:
        super().__init__(("127.0.0.1", port), _IssuerHandler)
        self.issuer = issuer


class _IssuerHandler(BaseHTTPRequestHandler):
    server: _IssuerServer

    def do_GET(self) -> None:
        self._reply(dict(parse_qsl(urlsplit(self.path).query)))

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers.get("content-length", 0))).decode()
        is_json = self.headers.get("content-type", "").startswith("application/json")
        self._reply(json.loads(content) if is_json else dict(parse_qsl(content)))

    def _reply(self, values: Mapping[str, str]) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        status, fields, body = self.server.issuer.answer(
            self.command, urlsplit(self.path).path, values, headers
        )
        with contextlib.suppress(ConnectionError):  # a caller may not read all of a large answer
            self.send_response(status)
            for name, value in {**fields, "content-length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the base class names it so
        """Log nothing on stderr."""

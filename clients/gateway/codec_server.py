"""A codec server: decrypts what Temporal's web UI and command line show.

It follows Temporal's protocol for remote codecs: `POST /decode` and `POST /encode` with payloads in
the JSON of protobuf. A payload that cannot be decrypted is returned as it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Collection, Sequence

from google.protobuf import json_format
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from temporalio.api.common.v1 import Payload, Payloads
from temporalio.converter import DataConverter

from perdure import errors, limits
from perdure.clients.gateway.auth import one_token
from perdure.clients.gateway.problems import RefusedError, response_to

_ORIGIN = re.compile(r"https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?|https?://\[[0-9a-f:]+\](:[0-9]{1,5})?")
_HOST = re.compile(r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?", re.IGNORECASE)
_ASKED = "authorization, content-type, x-namespace"
_MAX_AGE_S = "600"

Work = Callable[[Sequence[Payload]], Awaitable[list[Payload]]]


def codec_server(
    converter: DataConverter, origins: Collection[str], token: str | None
) -> Starlette:
    """Return an application that encodes and decodes payloads.

    Args:
        converter: The data converter, which has a codec.
        origins: The pages that may ask in a browser, such as `https://temporal.example.com`. The
            collection is read at each request.
        token: The bearer token of all requests; without one, only requests to a name of this
            machine are answered.

    Raises:
        ConfigurationError: There is no codec, or an origin or the token cannot be one.
    """
    codec = converter.payload_codec
    if codec is None:
        raise errors.ConfigurationError(
            "there is nothing to decrypt with; set PERDURE_ENCRYPTION_KEYS, or name a data"
            " converter with a codec in PERDURE_DATA_CONVERTER"
        )
    for origin in origins:
        check_origin(origin)
    check_caller = _holder_of(token)

    def route(work: Work) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            origin = request.headers.get("origin")
            try:
                if origin is not None and origin not in origins:
                    raise RefusedError(
                        403, "ORIGIN_REFUSED", "this page may not ask; name it with --origin"
                    )
                if request.method == "OPTIONS":
                    response = Response(status_code=204)
                else:
                    check_caller(request)
                    response = await _worked(request, work)
            except RefusedError as refused:
                response = response_to(refused)
            _allow(response, origin if origin in origins else None)
            return response

        return answer

    routes = [
        Route(f"{prefix}/{name}", route(work), methods=["POST", "OPTIONS"])
        for name, work in (("encode", codec.encode), ("decode", codec.decode))
        for prefix in ("", "/{namespace}")  # the command line's endpoint may contain {namespace}
    ]
    return Starlette(routes=routes)


def check_origin(origin: str) -> None:
    """Check that a text is the origin of a page.

    Raises:
        ConfigurationError: It is none.
    """
    if not _ORIGIN.fullmatch(origin):
        raise errors.ConfigurationError(
            f"{origin!r} is not an origin; it is scheme, host and port, such as"
            " https://temporal.example.com, without a path"
        )


def _holder_of(token: str | None) -> Callable[[Request], None]:
    """Return what refuses a request without the token.

    Without a token it refuses a request to another name than one of this machine.

    Raises:
        ConfigurationError: The token is too short.
    """
    caller = None if token is None else one_token(token)

    def check(request: Request) -> None:
        if caller is None and not _HOST.fullmatch(request.headers.get("host", "")):
            raise RefusedError(
                403, "HOST_REFUSED", "without a token, only a name of this machine is answered"
            )
        if caller is not None and caller(request) is None:
            raise RefusedError(401, "UNAUTHORIZED", "this needs the bearer token of perdure codec")

    return check


async def _worked(request: Request, work: Work) -> Response:
    try:
        document = json.loads(await _body(request))
        if not isinstance(document, dict):
            raise ValueError("it is no object")
        payloads = json_format.ParseDict(document, Payloads())
    except (json_format.ParseError, ValueError, RecursionError):
        raise RefusedError(
            400, "INVALID_JSON", 'the body is not {"payloads": [...]} as protobuf writes JSON'
        ) from None
    try:
        done = await work(payloads.payloads)
    except Exception as error:  # noqa: BLE001 - of the user's codec; its message may quote a key
        raise RefusedError(
            400, "NOT_DECODED", f"the codec failed ({type(error).__name__})"
        ) from None
    content = json_format.MessageToJson(Payloads(payloads=done), indent=None)
    return Response(content, media_type="application/json")


async def _body(request: Request) -> bytes:
    """Return the body.

    Raises:
        RefusedError: It is too large.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limits.CODEC_BODY_BYTES:
            raise RefusedError(
                413, "TOO_LARGE", f"the body is larger than {limits.CODEC_BODY_BYTES} bytes"
            )
    return bytes(body)


def _allow(response: Response, origin: str | None) -> None:
    """Add the headers by which a browser lets a page of a named origin read the answer."""
    response.headers["Cache-Control"] = "no-store"
    response.headers["Vary"] = "Origin"
    if origin is not None:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Access-Control-Allow-Headers"] = _ASKED
        response.headers["Access-Control-Allow-Methods"] = "POST, OPTIONS"
        response.headers["Access-Control-Allow-Credentials"] = "true"
        response.headers["Access-Control-Max-Age"] = _MAX_AGE_S

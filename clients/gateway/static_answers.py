"""Answers that are public and the same for everybody: cacheable, with an entity tag."""

from __future__ import annotations

import hashlib
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

_JSON = "application/json"
_CACHED = "public, max-age=300"


def static_answer(request: Request, content: bytes, media_type: str = _JSON) -> Response:
    """Return the content, or 304 to a client that has it already."""
    tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": tag, "Cache-Control": _CACHED}
    known = request.headers.get("if-none-match", "")
    if tag in (part.strip().removeprefix("W/") for part in known.split(",")):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(content, headers=headers, media_type=media_type)

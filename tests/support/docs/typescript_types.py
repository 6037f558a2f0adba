"""The types of the client in TypeScript: `make typescript` writes
`clients/typescript/src/schema.ts` from the OpenAPI document and the schema of events, with
`openapi-typescript`.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from pathlib import Path
from typing import Any

from . import event_schema, openapi_document

ROOT = Path(__file__).parents[3]
FILE = ROOT / "clients/typescript/src/schema.ts"
OPTIONS = ("--default-non-nullable=false", "--root-types", "--root-types-no-schema-prefix")


def source() -> dict[str, Any]:
    """The OpenAPI document, with what the stream of a turn sends, which is text there."""
    document = openapi_document.document()
    views = event_schema.schema()["$defs"]
    schemas = {"TurnEvent": views["public_event"], "LiveItem": views["live"]}
    document["components"]["schemas"] |= schemas
    return document


def mark() -> str:
    """The first line of the file, which changes with what it is made from."""
    digest = hashlib.sha256(json.dumps(source(), sort_keys=True).encode()).hexdigest()
    return f"// Written by `make typescript` from the OpenAPI document and the events; {digest}"


def modules() -> Path:
    """The folder with the packages of `make mcp-servers`."""
    return Path(os.environ.get("PERDURE_NODE_MODULES", "node_modules")).absolute()


def text() -> str:
    """The content of the file; it needs Node.js and `openapi-typescript`."""
    program = modules() / ".bin" / "openapi-typescript"
    made = subprocess.run(
        [str(program), *OPTIONS],
        input=json.dumps(source()),
        capture_output=True,
        text=True,
        check=True,
    )
    return f"{mark()}\n{made.stdout}"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")

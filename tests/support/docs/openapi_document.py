"""The published OpenAPI document: `python -m tests.support.docs.openapi_document` writes
`docs/assets/openapi.json` from the operations.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perdure.clients.gateway import openapi
from perdure.clients.gateway.application import operations

FILE = Path(__file__).parents[3] / "docs/assets/openapi.json"


def document() -> dict[str, Any]:
    """The document that the gateway serves."""
    return openapi.document(operations())


def text() -> str:
    """The document as it is published."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")

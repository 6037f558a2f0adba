"""A folder as the external storage of large values."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from temporalio.api.common.v1 import Payload
from temporalio.converter import (
    StorageDriver,
    StorageDriverClaim,
    StorageDriverRetrieveContext,
    StorageDriverStoreContext,
)


class Folder(StorageDriver):
    """Stores payloads as files in a folder, by the digest of their content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def name(self) -> str:
        return "folder"

    async def store(
        self, context: StorageDriverStoreContext, payloads: Sequence[Payload]
    ) -> list[StorageDriverClaim]:
        claims = []
        for payload in payloads:
            data = payload.SerializeToString()
            digest = hashlib.sha256(data).hexdigest()
            (self._folder / digest).write_bytes(data)
            claims.append(StorageDriverClaim({"sha256": digest}))
        return claims

    async def retrieve(
        self, context: StorageDriverRetrieveContext, claims: Sequence[StorageDriverClaim]
    ) -> list[Payload]:
        return [
            Payload.FromString((self._folder / claim.claim_data["sha256"]).read_bytes())
            for claim in claims
        ]

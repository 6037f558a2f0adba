"""A process that needs a token of a person, and renews it: `file key subject url`."""

import asyncio
import sys

from perdure.temporal.encryption.data_keys import SubjectKeys
from perdure.temporal.encryption.grants import Grants
from perdure.temporal.encryption.sqlite_keys import SqliteKeys
from perdure.temporal.encryption.vault import Vault

if __name__ == "__main__":
    file, key, subject, url = sys.argv[1:]
    keys = SubjectKeys(SqliteKeys(file), {"k1": bytes.fromhex(key)})
    asyncio.run(Grants(Vault(keys)).token(subject, url))

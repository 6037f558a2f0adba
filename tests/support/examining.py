"""`perdure doctor` on a server of its own, where nothing of other tests is found."""

import asyncio
from collections.abc import Iterator

import pytest

from perdure.testing.runtime import server_in_thread
from perdure.worker.doctor.examination import Examination
from perdure.worker.setup_checks import Finding


@pytest.fixture(scope="module")
def own_server() -> Iterator[str]:
    """The address of a server that the tests of a module have for themselves."""
    with server_in_thread() as address:
        yield address


async def findings(examination: Examination) -> list[Finding]:
    """All findings."""
    return [finding async for finding in examination.findings()]


async def problem(examination: Examination, remedy: str) -> Finding:
    """The problem with these words in its remedy, as soon as it is found."""
    async with asyncio.timeout(120):
        while True:
            found = [one for one in await findings(examination) if remedy in one.remedy]
            if found:
                return found[0]
            await asyncio.sleep(0.2)

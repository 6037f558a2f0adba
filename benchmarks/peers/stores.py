"""Databases for libraries: a SQLite file for each, or a database for each in a PostgreSQL server
that runs during the benchmark.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import psycopg

DEBIANS = Path("/usr/lib/postgresql")
_SQLITE_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table'"
_POSTGRES_COLUMNS = (
    "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns WHERE"
    " table_schema IN ('public', 'dbos')"
)


def binaries() -> Path | None:
    """The folder of PostgreSQL's programs, on the path or as installed by Debian."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else []
    return next(iter([*folders, *sorted(DEBIANS.glob("*/bin"), reverse=True)]), None)


@contextlib.asynccontextmanager
async def postgres(folder: Path) -> AsyncIterator[str]:
    """A server on loopback with its defaults; yields its address, to which the name of a database
    is added. It refuses to run as root.
    """
    found, port, user = binaries(), _free_port(), "postgres" if os.geteuid() == 0 else None
    assert found is not None
    _prepare(folder, user)
    await _run(
        found / "initdb",
        "-D",
        folder,
        "-U",
        "bench",
        "--auth=trust",
        "--no-instructions",
        user=user,
    )
    with (folder.parent / "postgres.log").open("wb") as log:
        command = (
            found / "postgres",
            "-D",
            folder,
            "-p",
            str(port),
            "-h",
            "127.0.0.1",
            "-k",
            folder,
        )
        server = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log, user=user)
    try:
        yield await _answering(f"postgresql://bench@127.0.0.1:{port}/")
    finally:
        server.terminate()
        await server.wait()


def _prepare(folder: Path, user: str | None) -> None:
    folder.mkdir()
    if user:
        shutil.chown(folder, user)
        folder.parent.chmod(0o755)


async def _answering(address: str) -> str:
    while True:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(f"{address}postgres").close()
            return address
        await asyncio.sleep(0.05)


async def _run(*command: str | Path, user: str | None) -> None:
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, user=user
    )
    assert await process.wait() == 0, command


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def create(address: str, name: str) -> str:
    """Create a new database and return its address."""
    with psycopg.connect(f"{address}postgres", autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[call-overload,unused-ignore]
    return f"{address}{name}"


def stored_bytes(url: str) -> int:
    """The bytes of all values in all tables, before compression and without indexes."""
    return (
        _stored_in_postgres(url)
        if url.startswith("postgres")
        else _stored_in_sqlite(url.removeprefix("sqlite:///"))
    )


def _stored_in_sqlite(file: str) -> int:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        tables = [name for (name,) in connection.execute(_SQLITE_TABLES)]
        columns = [
            (table, row[1])
            for table in tables
            for row in connection.execute(f'PRAGMA table_info("{table}")')
        ]
        sums = (
            connection.execute(
                f'SELECT sum(length(CAST("{column}" AS BLOB))) FROM "{table}"'
            ).fetchone()[0]
            for table, column in columns
        )
        return sum(found or 0 for found in sums)


def _stored_in_postgres(url: str) -> int:
    with psycopg.connect(url) as connection:
        total = 0
        for schema, table, column, kind in connection.execute(_POSTGRES_COLUMNS).fetchall():
            value = f'"{column}"' if kind == "bytea" else f'"{column}"::text'
            row = connection.execute(
                f'SELECT sum(octet_length({value})) FROM "{schema}"."{table}"'
            ).fetchone()  # type: ignore[call-overload,unused-ignore]
            total += int(row[0] or 0) if row else 0
        return total

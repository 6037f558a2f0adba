"""Who calls: the caller of a request, from a bearer token or from a function."""

from __future__ import annotations

import hashlib
import inspect
import logging
import re
import stat
import time
import tomllib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request

from perdure import errors, limits, validation
from perdure.base import Value
from perdure.clients.gateway.permissions import ALL, Granted, Permission
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.quotas import Quota
from perdure.temporal.payloads import explain
from perdure.validation import Must

logger = logging.getLogger("perdure")

_TENANT = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.TENANT_CHARACTERS}}}")
Tenant = Annotated[
    str,
    Must(
        f"1 to {limits.TENANT_CHARACTERS} letters, digits, dashes and underscores",
        lambda value: isinstance(value, str) and bool(_TENANT.fullmatch(value)),
    ),
]
Permissions = Annotated[
    frozenset[Permission], Must(f"a frozenset of {', '.join(map(repr, sorted(ALL)))}")
]
_SETTLES_S = 1.0
"""A file that was written a shorter time ago may not be complete."""
_TOKEN = re.compile(rf"[A-Za-z0-9._~+/-]{{{limits.TOKEN_CHARACTERS},}}=*")


@dataclass(frozen=True)
class Caller:
    """The caller of a request.

    Attributes:
        subject: The name that is recorded with decisions, such as an e-mail address: one line, at
            most 200 characters.
        tenant: The tenant whose turns the caller sees, and no others: 1 to 32 letters, digits,
            dashes and underscores. None for a caller that sees everything.
        may: What the caller may do; everything by default.
        quota: How much its tenant may have at the same time.
        identity: What tells the caller apart from another one of the same name, such as the issuer
            and the `sub` of its token; empty if its name does.

    Raises:
        ConfigurationError: A field is not valid.
    """

    subject: validation.By
    tenant: Tenant | None
    may: Permissions = ALL
    quota: Annotated[Quota, validation.instance("a Quota", Quota)] = Quota()
    identity: Annotated[str, validation.instance("a string", str)] = ""

    def __post_init__(self) -> None:
        validation.check_fields(Caller, "Caller", self)

    @property
    def counted_as(self) -> tuple[str | None, str]:
        """What its requests are counted by: its tenant, and what tells it apart there."""
        return self.tenant, self.identity or self.subject

    @property
    def prefix(self) -> str:
        """The beginning of the ids of the tenant; empty for a caller without a tenant."""
        return "" if self.tenant is None else f"@{self.tenant}/"

    def own(self, id: str) -> str:
        """Return the complete id for an id that the caller gives, with or without the prefix.

        Whatever is given, the id is one of the tenant's.
        """
        return id if id.startswith(self.prefix) else f"{self.prefix}{id}"

    def require(self, permission: Permission) -> None:
        """Refuse a request that needs a permission that the caller lacks.

        Raises:
            RefusedError: It does.
        """
        if permission not in self.may:
            raise RefusedError(403, "FORBIDDEN", f"this needs the permission {permission!r}")


Auth = Callable[[Request], Caller | Awaitable[Caller | None] | None]
"""Returns the caller of a request; None if it is not known."""


def nobody(_: Request) -> None:
    """Know no caller, where all of them are those of an identity provider."""


async def asked(auth: Auth, request: Request) -> Caller | None:
    """Return what a function says about the caller of a request.

    Raises:
        TypeError: It returns something else than a caller or None.
    """
    answer = auth(request)
    caller = await answer if inspect.isawaitable(answer) else answer
    if caller is not None and not isinstance(caller, Caller):
        raise TypeError(f"auth returned {validation.sort(caller)}, not a Caller or None")
    return caller


async def caller_of(request: Request, auth: Auth) -> Caller:
    """Return the caller of a request.

    Raises:
        RefusedError: The caller is not known.
        TypeError: The function returns something else.
    """
    caller = await asked(auth, request)
    if caller is None:
        raise RefusedError(
            401,
            "UNAUTHENTICATED",
            f"the request has no valid bearer token of at least {limits.TOKEN_CHARACTERS}"
            " characters; send the header Authorization: Bearer TOKEN, with the token that the"
            " gateway printed at its start, or that its operator gave you",
            headers={"WWW-Authenticate": "Bearer"},
        )
    return caller


_Number = Annotated[int, Field(ge=0, le=validation.MOST, strict=True)]


class _TokenEntry(Value):
    """The entry of a file of tokens."""

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    subject: str
    tenant: str | None = None
    may: Granted = ALL


class TenantNumbers(Value):
    """The numbers of a tenant; without one, the default."""

    name: str
    turns: _Number = limits.TENANT_TURNS
    sessions: _Number = limits.TENANT_SESSIONS
    batches: _Number = limits.TENANT_BATCHES
    tasks: _Number = limits.TENANT_TASKS
    schedules: _Number = limits.TENANT_SCHEDULES

    @property
    def quota(self) -> Quota:
        """The same as a value."""
        return Quota(**self.model_dump(exclude={"name"}))


class _TokensFile(Value):
    caller: tuple[_TokenEntry, ...]
    tenant: tuple[TenantNumbers, ...] = ()

    def callers(self) -> dict[str, Caller]:
        """Return the callers, by the digests of their tokens."""
        quotas = {tenant.name: tenant.quota for tenant in self.tenant}
        return {
            entry.sha256: Caller(
                entry.subject, entry.tenant, entry.may, quotas.get(entry.tenant or "", Quota())
            )
            for entry in self.caller
        }


def tokens_from(path: Path) -> Auth:
    """Return the function that knows the callers by the bearer tokens of a TOML file.

    The file has a table `[[caller]]` for each, with `sha256`, the SHA-256 of the token in
    hexadecimal digits; `subject`; and if needed `tenant` and `may`. A token that is shorter than
    `limits.TOKEN_CHARACTERS` is not taken. The file is read again when it has changed. If it cannot
    be read then, or is not valid, the callers stay as they are; if it is gone, every request is
    refused.
    The log has the reason.

    Raises:
        ConfigurationError: The file cannot be read, or is not valid.
    """
    return _Tokens(path).caller_of


def quotas_from(path: Path) -> dict[str, Quota]:
    """Return the tenants of a file of tokens, with their numbers.

    Raises:
        ConfigurationError: The file cannot be read, or is not valid.
    """
    callers = _callers_in(path).values()
    return {caller.tenant: caller.quota for caller in callers if caller.tenant is not None}


class _Tokens:
    """The callers of a file of tokens, as it was when it was last valid."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = _stamp(path)
        self._known = self._read()

    def caller_of(self, request: Request) -> Caller | None:
        """Return the caller of a request, by its bearer token; None if it is not known."""
        self._look()
        return self._known.get(_digest_of(request) or "")

    def _look(self) -> None:
        """Read the file if it has changed, unless it may still be being written."""
        now = _stamp(self._path)
        if now == self._seen or (now is not None and 0 <= time.time() - now[0] / 1e9 < _SETTLES_S):
            return
        self._seen = now
        if now is None:
            self._known = {}
            logger.error("%s is gone: the gateway lets nobody in until it is back", self._path)
            return
        try:
            self._known = self._read()
        except errors.ConfigurationError as error:
            logger.error("the callers of the gateway stay as they were: %s", error.message)

    def _read(self) -> dict[str, Caller]:
        """Return the callers of the file, and warn if other users of the machine can read it.

        Raises:
            ConfigurationError: It cannot be read, or is not valid.
        """
        known = _callers_in(self._path)
        if self._seen is not None and self._seen[-1] & 0o077:
            logger.warning("other users may read %s; chmod 600 ends that", self._path)
        return known


def _stamp(path: Path) -> tuple[int, ...] | None:
    """Return what changes with a file: its time in nanoseconds, its size, inode and mode."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino, stat.S_IMODE(status.st_mode)


def _callers_in(path: Path) -> dict[str, Caller]:
    """Return the callers of a file, by the digests of their tokens.

    Raises:
        ConfigurationError: It cannot be read, or is not valid.
    """
    try:
        file = _TokensFile.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        known = file.callers()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise errors.ConfigurationError(f"the tokens of {path} cannot be read: {error}") from None
    except ValidationError as error:
        raise errors.ConfigurationError(
            f"the tokens of {path} are not valid: {explain(error)}"
        ) from None
    if len(known) < len(file.caller):
        raise errors.ConfigurationError(f"two callers of {path} have the same token")
    _check_tenants(path, [caller.tenant or "" for caller in known.values()], file.tenant)
    return known


def _check_tenants(path: Path, names: Sequence[str], numbers: Sequence[TenantNumbers]) -> None:
    """Refuse tenants that a database which ignores case could not tell apart, and numbers of none.

    Raises:
        ConfigurationError: Two of them differ by case only, or the numbers are not those of one.
    """
    described = [tenant.name for tenant in numbers]
    for name in described:
        if name not in names or described.count(name) > 1:
            raise errors.ConfigurationError(
                f"{path} has numbers of the tenant {name!r}, who has no caller, or has them twice"
            )
    tenants: dict[str, str] = {}
    for name in names:
        other = tenants.setdefault(name.lower(), name)
        if other != name:
            raise errors.ConfigurationError(
                f"the tenants {other!r} and {name!r} of {path} differ by case only; use one of them"
            )


def one_token(token: str) -> Auth:
    """Return the function that knows one caller, who may do everything, by this bearer token.

    Decisions are recorded with the name "operator".

    Raises:
        ConfigurationError: The token is too short, or has a character that a header cannot have.
    """
    if not _TOKEN.fullmatch(token):
        raise errors.ConfigurationError(
            f"the token of the gateway is not at least {limits.TOKEN_CHARACTERS} letters and"
            " digits; make a random one: openssl rand -hex 32"
        )
    digest, operator = hashlib.sha256(token.encode()).hexdigest(), Caller("operator", None)

    def caller(request: Request) -> Caller | None:
        return operator if _digest_of(request) == digest else None

    return caller


def bearer_of(request: Request) -> str | None:
    """Return the bearer token of a request; None without one."""
    scheme, _, credential = request.headers.get("authorization", "").partition(" ")
    return credential.strip() if scheme.lower() == "bearer" else None


def _digest_of(request: Request) -> str | None:
    """Return the SHA-256 of the bearer token of a request; None without one that is long enough."""
    token = bearer_of(request)
    if token is None or len(token) < limits.TOKEN_CHARACTERS:
        return None
    return hashlib.sha256(token.encode()).hexdigest()


def origins_of(headers: Headers) -> list[str]:
    """Return the origins of pages at the host that a request is sent to."""
    host = headers.get("host", "")
    return [f"http://{host}", f"https://{host}"]

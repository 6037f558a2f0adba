"""The table that makes a caller of the claims of a token: its name, its tenant, its permissions."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, StringConstraints, ValidationError, model_validator

from perdure import errors, limits
from perdure.base import Value
from perdure.clients.gateway.auth import Caller, TenantNumbers
from perdure.clients.gateway.permissions import ROLES, Granted, Permission
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.quotas import Quota
from perdure.temporal.payloads import explain
from perdure.text import one_line, quoted

ALL_TENANTS = "*"
"""Stands in the table for no tenant: the caller sees everything."""
_OWN_NAME = re.compile(rf"[a-z0-9_-]{{1,{limits.TENANT_CHARACTERS}}}")
_TENANT = re.compile(rf"[A-Za-z0-9_-]{{1,{limits.TENANT_CHARACTERS}}}|\*")

ClaimName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
"""The name of a claim, or a path such as `realm_access.roles`."""


class ClaimNames(Value):
    """Which claims say what.

    Attributes:
        subject: The claims with the name that is recorded with decisions; the first that a token
            has counts.
        tenant: The claim with the tenant; without one, callers see everything.
        permissions: The claim with the words of `may`: a list, or a text with spaces.
    """

    subject: Annotated[tuple[ClaimName, ...], Field(min_length=1)] = (
        "preferred_username",
        "email",
        "sub",
    )
    tenant: ClaimName | None = None
    permissions: ClaimName = "roles"


class ClaimsTable(Value):
    """How a caller is made of a token.

    Attributes:
        plain_jwt: Whether access tokens may have the type `JWT` instead of `at+jwt` (RFC 9068).
        scope: What the page asks for when a person logs in.
        claims: Which claims say what.
        may: The permissions and roles for each word of the claim.
        tenants: The names of tenants, by the value of the claim; others are refused then. `*` is
            for callers who see everything.
        tenant: The numbers of tenants.
    """

    plain_jwt: bool = False
    scope: Annotated[str, StringConstraints(pattern=r"^openid( [!-~]+)*$")] = "openid profile email"
    claims: ClaimNames = ClaimNames()
    may: Mapping[str, Granted] = {f"perdure-{role}": may for role, may in ROLES.items()}
    tenants: Mapping[str, str] = {}
    tenant: tuple[TenantNumbers, ...] = ()

    @model_validator(mode="after")
    def _check_tenants(self) -> ClaimsTable:
        for name in self.tenants.values():
            if not _TENANT.fullmatch(name):
                raise ValueError(f"{name!r} is no name of a tenant")
        names = {name.lower() for name in self.tenants.values()}
        if len(names) < len(set(self.tenants.values())):
            raise ValueError("two names of tenants differ by case only")
        if self.tenants and self.claims.tenant is None:
            raise ValueError("there are tenants, and claims.tenant does not say which claim has it")
        described = [numbers.name for numbers in self.tenant]
        if len(set(described)) < len(described):
            raise ValueError("the numbers of a tenant are there twice")
        return self

    @cached_property
    def quotas(self) -> Mapping[str, Quota]:
        """The numbers of tenants."""
        return {numbers.name: numbers.quota for numbers in self.tenant}

    def tenants_with(self, others: Mapping[str, Quota]) -> Mapping[str, Quota] | None:
        """Return the tenants that there are, with their numbers; None if any may come."""
        if self.claims.tenant is not None and not self.tenants:
            return None
        names = set(self.tenants.values()) - {ALL_TENANTS}
        return {**{name: Quota() for name in names}, **self.quotas, **others}

    def caller(self, claims: Mapping[str, Any]) -> Caller:
        """Return the caller of the verified claims of a token.

        Raises:
            RefusedError: The token names no tenant, or one that is not known, or nobody.
        """
        issuer, subject = claims["iss"], claims["sub"]
        return self.known(
            subject=self._name(claims),
            tenant=self._tenant(claims),
            may=self._may(claims),
            identity=f"{issuer} {subject}",
        )

    def known(
        self, *, subject: str, tenant: str | None, may: frozenset[Permission], identity: str
    ) -> Caller:
        """Return a caller with the numbers of its tenant."""
        quota = self.quotas.get(tenant or "", Quota())
        return Caller(subject, tenant, may, quota, identity)

    def _name(self, claims: Mapping[str, Any]) -> str:
        """Return the first name that can be recorded.

        Raises:
            RefusedError: There is none.
        """
        for name in self.claims.subject:
            if name == "email" and claims.get("email_verified") is False:
                continue
            value = value_of(claims, name)
            if isinstance(value, str) and _is_name(value):
                return value
        raise RefusedError(
            403,
            "FORBIDDEN",
            "the token has no name that can be recorded: one line of 1 to"
            f" {limits.BY_CHARACTERS} characters in {' or '.join(self.claims.subject)}",
        )

    def _tenant(self, claims: Mapping[str, Any]) -> str | None:
        """Return the tenant.

        Raises:
            RefusedError: The token names none, or one that is not known.
        """
        claim = self.claims.tenant
        if claim is None:
            return None
        value = value_of(claims, claim)
        if not isinstance(value, str) or not value:
            raise RefusedError(
                403, "FORBIDDEN", f"the token has no claim {claim!r}, which names the tenant"
            )
        name = self.tenants.get(value) if self.tenants else value
        if name == ALL_TENANTS and self.tenants:
            return None
        # without a table, two that differ by case only could not be told apart in some databases
        if name is None or not (self.tenants or _OWN_NAME.fullmatch(name)):
            raise RefusedError(
                403,
                "FORBIDDEN",
                f"the token names the tenant {quoted(one_line(value, 100))}, which is none of"
                " [tenants]"
                if self.tenants
                else f"the token names the tenant {quoted(one_line(value, 100))}; without [tenants]"
                f" it is 1 to {limits.TENANT_CHARACTERS} lower-case letters, digits, dashes and"
                " underscores",
            )
        return name

    def _may(self, claims: Mapping[str, Any]) -> frozenset[Permission]:
        words = _words(value_of(claims, self.claims.permissions))
        return frozenset(
            permission for word in words for permission in self.may.get(word, frozenset())
        )


def claims_from(path: Path) -> ClaimsTable:
    """Return the table of a TOML file.

    Raises:
        ConfigurationError: The file cannot be read, or is not valid.
    """
    try:
        return ClaimsTable.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise errors.ConfigurationError(f"the claims of {path} cannot be read: {error}") from None
    except ValidationError as error:
        raise errors.ConfigurationError(
            f"the claims of {path} are not valid: {explain(error)}"
        ) from None


def value_of(claims: Mapping[str, Any], name: str) -> Any:
    """Return the value of a claim: of the whole name, or else along its path; None without one."""
    if name in claims:  # such as https://example.com/roles
        return claims[name]
    value: Any = claims
    for part in name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def _words(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield from value.split()
    elif isinstance(value, list):
        yield from (word for word in value if isinstance(word, str))


def _is_name(value: str) -> bool:
    try:
        Caller(value, None)
    except errors.ConfigurationError:
        return False
    return True

"""The hooks of a gateway, as their operator declares them in a file."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

from pydantic import AfterValidator, Field, JsonValue, ValidationError, model_validator
from pydantic_core import to_json

from perdure import errors, limits, validation
from perdure.clients.gateway.auth import Caller
from perdure.clients.gateway.hooks import templates
from perdure.clients.gateway.hooks.schemes import SCHEMES, Scheme, SchemeName
from perdure.clients.gateway.hooks.templates import Delivery, Template
from perdure.clients.gateway.ids import check_token
from perdure.clients.gateway.inputs import Body
from perdure.clients.gateway.options import CommonOptions
from perdure.clients.gateway.problems import RefusedError
from perdure.clients.gateway.quotas import Quota
from perdure.temporal import secrets
from perdure.temporal.payloads import explain
from perdure.turn.event_keys import EventKey

BASE = "/hooks/"
"""The beginning of every path. Nothing else of the gateway is served below it."""
_PATH = re.compile(rf"{BASE}[A-Za-z0-9][A-Za-z0-9_-]{{0,{limits.HOOK_NAME_CHARACTERS - 1}}}")
_KEPT_IN_KEYS = "@:+=,"
_OF_EVENTS = {
    *("path", "verify", "secrets", "template", "filter", "tenant", "replay_window"),
    *("event", "turn", "key"),
}
"""The fields of a hook that sends events."""
_OF_CALLS = {*_OF_EVENTS, "call", "failed"} - {"event", "turn", "key"}
"""The fields of a hook that sends results of calls."""

Scalar = str | bool | int | float


def _checked_path(path: str) -> str:
    if not _PATH.fullmatch(path):
        raise ValueError(
            f"a path is {BASE} and 1 to {limits.HOOK_NAME_CHARACTERS} letters, digits, dashes and"
            f" underscores, such as {BASE}github"
        )
    return path


def _checked_window(window: timedelta) -> timedelta:
    if not timedelta() < window <= limits.HOOK_LONGEST_REPLAY:
        minutes = limits.HOOK_LONGEST_REPLAY.total_seconds() / 60
        raise ValueError(f"it is longer than zero and at most {minutes:.0f} minutes, such as PT5M")
    return window


def _listed(value: Scalar | tuple[Scalar, ...]) -> tuple[JsonValue, ...]:
    return value if isinstance(value, tuple) else (value,)


def _refuse(names: Set[str], needed: str) -> None:
    if names:
        raise ValueError(f"{min(names)} needs {needed}")


Values = dict[templates.Field, Annotated[Scalar | tuple[Scalar, ...], AfterValidator(_listed)]]
"""The values of fields, one or several of each."""


class HookTable(CommonOptions):
    """A table of a file of hooks.

    Attributes:
        path: Where deliveries are sent: `/hooks/` and a name.
        verify: How the sender signs them.
        secrets: The names of environment variables with the secrets; one of them has to fit.
        template: The task of the turn, the message to the session, or what the event holds, with
            fields in braces.
        agent: The name of the agent.
        session: The id of the session that gets a message, with fields in braces. Without it, each
            delivery starts a turn.
        if_busy: What happens to a message if a turn of the session runs.
        idle: The time without a turn and a message after which a session is closed.
        event: The name of the event that turns get, in place of an agent.
        turn: The id of the turn that gets it, with fields in braces.
        key: In place of a turn, the key by which turns wait for it, with fields in braces.
        call: In place of an agent or an event, the token of the call that gets the result, with
            fields in braces.
        failed: The values by which a delivery says that the job of the call has failed.
        filter: The values that fields must have. Other deliveries start nothing.
        tenant: The tenant to which the turns and sessions belong.
        replay_window: How long ago a delivery may have been signed.
    """

    path: Annotated[str, AfterValidator(_checked_path)]
    verify: SchemeName
    secrets: Annotated[tuple[str, ...], Field(min_length=1, max_length=limits.HOOK_SECRETS)]
    template: Template
    agent: Annotated[str, Field(min_length=1)] | None = None
    session: Template | None = None
    if_busy: Literal["queue", "steer", "interrupt"] = "queue"
    idle: timedelta | None = None
    event: validation.EventName | None = None
    turn: Template | None = None
    key: Template | None = None
    call: Template | None = None
    failed: Values = {}
    filter: Values = {}
    tenant: str | None = None
    replay_window: Annotated[timedelta, AfterValidator(_checked_window)] = limits.HOOK_REPLAY

    @property
    def target(self) -> Template | None:
        """The id of the session or of the turn that gets a delivery."""
        return self.turn if self.session is None else self.session

    @model_validator(mode="after")
    def _check_target(self) -> HookTable:
        if self.call is not None:
            others = self.model_fields_set - _OF_CALLS
            if others:
                raise ValueError(f"give a call, or {min(others)}, not both")
            return self
        _refuse(self.model_fields_set & {"failed"}, "a call")
        if self.agent is None:
            if self.event is None or (self.turn is None) == (self.key is None):
                raise ValueError(
                    "give an agent, or an event and either the turn that gets it or its key"
                )
            _refuse(self.model_fields_set - _OF_EVENTS, "an agent")
        elif {"event", "turn", "key"} & self.model_fields_set:
            raise ValueError("give an agent, or an event with a turn or a key, not both")
        if self.session is None:
            _refuse(self.model_fields_set & {"if_busy", "idle"}, "a session")
        if self.target is not None and not self.target.begins_with_text:
            raise ValueError(
                f"{'turn' if self.session is None else 'session'} begins with text of your own,"
                " such as customer-{/data/object/customer}, so that a delivery cannot name another"
            )
        return self


@dataclass(frozen=True)
class Hook:
    """A hook of a gateway, as `hooks_from` returns it.

    Attributes:
        table: What its file says.
        keys: The keys of its secrets.
        caller: The caller as which it starts turns and sends messages.
    """

    table: HookTable
    keys: tuple[bytes, ...] = field(repr=False)
    caller: Caller

    @property
    def name(self) -> str:
        """Its path without the beginning that all have."""
        return self.table.path.removeprefix(BASE)

    @property
    def scheme(self) -> Scheme:
        """How its deliveries are signed."""
        return SCHEMES[self.table.verify]

    def delivery_id(self, headers: Mapping[str, str], body: JsonValue) -> str:
        """Return the id of a delivery, by its headers and its body.

        Raises:
            RefusedError: It has none.
        """
        if found := self.scheme.delivery(headers, body):
            return found
        raise RefusedError(422, "INVALID_REQUEST", "the delivery has no id")

    def text(self, delivery: Delivery) -> str:
        """Return the task, the message, or what the event holds, for a delivery.

        Raises:
            RefusedError: The delivery does not fit the template.
        """
        return self.table.template.filled(delivery, templates.as_text)

    def target_id(self, delivery: Delivery) -> str | None:
        """Return the id of the session or the turn that gets it; None for one that starts a turn.

        What stands in the place of a field is encoded, so that different values are different ids,
        and none of them is the id of a turn of another session.

        Raises:
            RefusedError: The delivery does not fit the template.
        """
        return None if self.table.target is None else self.table.target.filled(delivery, _as_key)

    def event_key(self, delivery: Delivery) -> str | None:
        """Return the complete key of the event; None for a hook whose deliveries are none by key.

        What stands in the place of a field is not encoded: a model waits for it as it is.

        Raises:
            RefusedError: The delivery does not fit the template, or the key is not valid.
        """
        if self.table.key is None:
            return None
        key = self.table.key.filled(delivery, _as_part)
        complete = self.caller.own(key)
        if key.startswith("@") or not validation.accepts(EventKey, complete):
            raise RefusedError(
                422,
                "INVALID_REQUEST",
                f"the delivery is not valid: the key of its event is no line of 1 to"
                f" {limits.EVENT_KEY_CHARACTERS} visible characters that does not begin with @",
            )
        return complete

    def call_token(self, delivery: Delivery) -> str | None:
        """Return the token of the call that gets the result; None for a hook without calls.

        Raises:
            RefusedError: The delivery does not fit the template.
            InvalidRequestError: It is no token, or that of a call of another tenant.
        """
        if self.table.call is None:
            return None
        token = self.table.call.filled(delivery, _as_part)
        check_token(self.caller, token)
        return token

    def says_failed(self, delivery: Delivery) -> bool:
        """Return whether a delivery says that the job of a call has failed."""
        failed = self.table.failed
        return bool(failed) and templates.matches(delivery, failed)  # type: ignore[arg-type]

    def takes(self, delivery: Delivery) -> bool:
        """Return whether its filter lets a delivery pass."""
        return templates.matches(delivery, self.table.filter)  # type: ignore[arg-type]


def _as_key(name: str, value: JsonValue) -> str:
    """Return a value as a part of an id.

    Raises:
        RefusedError: It is no text and no number, or empty.
    """
    return quote(_as_part(name, value), safe=_KEPT_IN_KEYS)


def _as_part(name: str, value: JsonValue) -> str:
    """Return a value as a part of a key.

    Raises:
        RefusedError: It is no text and no number, or empty.
    """
    is_key = isinstance(value, str | int) and not isinstance(value, bool) and value != ""
    if not is_key:
        raise templates.unfit(name, "it has to be a text or a whole number to be a part of an id")
    return str(value)


class _HooksFile(Body):
    hook: Annotated[tuple[dict[str, Any], ...], Field(min_length=1)]


def hooks_from(path: Path, quotas: Mapping[str, Quota] | None = None) -> tuple[Hook, ...]:
    """Return the hooks of a TOML file, which has a table `[[hook]]` for each. It is read once.

    Args:
        path: The file.
        quotas: The numbers of the tenants that there are, as `quotas_from` returns them. Without
            it, a hook may have any tenant, with the default numbers.

    Raises:
        ConfigurationError: The file cannot be read or is not valid, or a secret is not set. The
            message names the file, the hook and the field.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        tables = _HooksFile.model_validate_json(to_json(document)).hook
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise errors.ConfigurationError(f"the hooks of {path} cannot be read: {error}") from None
    except ValidationError as error:
        raise errors.ConfigurationError(
            f"the hooks of {path} are not valid: {explain(error)}"
        ) from None
    hooks = [_hook(path, number, table, quotas) for number, table in enumerate(tables, start=1)]
    _check_paths(path, hooks)
    return tuple(hooks)


def _hook(
    path: Path, number: int, fields: dict[str, Any], quotas: Mapping[str, Quota] | None
) -> Hook:
    where = f"hook {number} of {path} ({fields.get('path', 'without a path')})"
    try:
        table = HookTable.model_validate_json(to_json(fields))
        keys = tuple(_key(table.verify, name) for name in table.secrets)
        caller = _caller(table, quotas)
    except ValidationError as error:
        raise errors.ConfigurationError(f"{where} is not valid: {explain(error)}") from None
    except errors.ConfigurationError as error:
        raise errors.ConfigurationError(f"{where} is not valid: {error.message}") from None
    return Hook(table, keys, caller)


def _key(verify: SchemeName, variable: str) -> bytes:
    """Return the key of a secret in the environment.

    Raises:
        ConfigurationError: It is not set, or not valid.
    """
    if not os.environ.get(variable):
        raise errors.ConfigurationError(f"secrets: the environment variable {variable} is not set")
    try:
        return SCHEMES[verify].key(secrets.read_words(variable))
    except errors.ConfigurationError as error:
        raise errors.ConfigurationError(f"secrets: {error.message}") from None
    except ValueError as error:
        raise errors.ConfigurationError(
            f"secrets: the environment variable {variable} does not hold {error}"
        ) from None


def _caller(table: HookTable, quotas: Mapping[str, Quota] | None) -> Caller:
    """Return the caller as which a hook acts.

    Raises:
        ConfigurationError: The tenant is not valid, or there is none of this name.
    """
    tenant = table.tenant
    if tenant is not None and quotas is not None and tenant not in quotas:
        raise errors.ConfigurationError(
            f"tenant: there is no caller of the tenant {tenant!r} in the file of tokens"
        )
    return Caller(
        f"hook {table.path}",
        tenant,
        frozenset({"start"}),
        (quotas or {}).get(tenant or "", Quota()),
    )


def _check_paths(path: Path, hooks: Sequence[Hook]) -> None:
    """Refuse two hooks of one path.

    Raises:
        ConfigurationError: There are two.
    """
    numbers: dict[str, int] = {}
    for number, hook in enumerate(hooks, start=1):
        other = numbers.setdefault(hook.table.path.lower(), number)
        if other != number:
            raise errors.ConfigurationError(
                f"hooks {other} and {number} of {path} have the same path, {hook.table.path}"
            )

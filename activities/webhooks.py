"""The activities of a webhook: read how a turn ended, and send the message about it.

The answer of a receiver is its status and `Retry-After`. Its body is not read, and a redirect is
not followed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError

from perdure import errors, limits
from perdure.activities.providers.http import retry_after_s
from perdure.activities.read_child import read_child, unread
from perdure.activities.webhook_rules import Receiver, WebhookRules
from perdure.delivery.push import PushCall
from perdure.delivery.webhook import (
    Delivered,
    Notification,
    WebhookCall,
    WebhookMessage,
    message_about,
)
from perdure.oauth.certificates import certificates
from perdure.temporal.histories.runs import end_of_run, last_recorded, run_instead
from perdure.temporal.names import WEBHOOK_FAILED
from perdure.turn.fold import apply
from perdure.turn.state import TurnState
from perdure.turn.wire import ChildRun, Noted

if TYPE_CHECKING:
    import httpx

NOT_SENT = (errors.InvalidRequestError, errors.TooLargeError)
"""The errors of a delivery that another attempt would not change, such as a refused receiver."""
_CONNECT_S = 5.0
_GONE = 410
_TOKEN = "x-a2a-notification-token"  # noqa: S105 - the name of the header
_MAY_PASS = frozenset({408, 409, 425, 429})
"""The statuses from 400 to 499 after which the message is sent again."""


class Webhooks:
    """The webhooks that this worker sends, as far as `rules` allow."""

    def __init__(self, rules: WebhookRules) -> None:
        self._rules = rules

    def check(self, url: str) -> None:
        """Refuse a URL that this worker does not send to.

        Raises:
            WebhookRefusedError: Its host is not allowed.
        """
        self._rules.receiver(url)

    async def check_receiver(self, call: PushCall) -> Noted:
        """Refuse the address of push notifications that this worker does not send to.

        Raises:
            WebhookRefusedError: Its host is not allowed.
        """
        self.check(call.url)
        return Noted()

    async def end_of_turn(self, call: WebhookCall) -> WebhookMessage:
        """Wait until a turn is over, and return the message about its end.

        The workflow that delivers it begins a moment before the turn ends, and a receiver that asks
        for the turn finds it over.

        Raises:
            TurnNotFoundError: Its history is gone.
            ApplicationError: The server does not answer; this is tried again.
        """
        client = activity.client()
        try:
            run_id, ended_at = await _end(client, call)
            state = TurnState()
            for _, fact in await last_recorded(client, call.turn_id, run_id, is_worker=True):
                state = state if fact is None else apply(state, fact)
            assert state.ended is not None
            summary = state.ended.summary
            if summary is None:  # it was cancelled
                run = ChildRun(turn_id=call.turn_id, run_id=run_id)
                summary = (await read_child(run)).summary
        except RPCError as error:
            raise unread(call.turn_id, error) from error
        return message_about(call.turn_id, state, summary, ended_at)

    async def notify(self, sent: Notification) -> Delivered:
        """Send a message once.

        Raises:
            WebhookRefusedError: Its host is not allowed, or has an address that is not public.
            ApplicationError: It was not delivered. It is sent again, unless the receiver's answer
                says that this would not help.
        """
        receiver = self._rules.receiver(sent.url)
        status, headers = await self._answer(receiver, sent)
        if 200 <= status < 300:
            return Delivered(status=status, attempts=activity.info().attempt)
        raise not_delivered(receiver.host, status, headers)

    async def _answer(
        self, receiver: Receiver, sent: Notification
    ) -> tuple[int, Mapping[str, str]]:
        """Return the status and the headers of the receiver's answer.

        Raises:
            ApplicationError: There is none.
        """
        import httpx

        limit_s = limits.WEBHOOK_CALL.total_seconds()
        try:
            async with asyncio.timeout(limit_s):
                async with self._response(receiver, sent) as response:
                    return response.status_code, response.headers
        except TimeoutError:
            raise _failure(f"{receiver.host} did not answer within {limit_s:g} s") from None
        except (OSError, UnicodeError):
            raise _failure(f"the host {receiver.host} is not known") from None
        except httpx.HTTPError as error:
            raise _failure(f"{receiver.host}: {type(error).__name__}") from None

    @contextlib.asynccontextmanager
    async def _response(
        self, receiver: Receiver, sent: Notification
    ) -> AsyncIterator[httpx.Response]:
        """Yield the response of the first reachable address, before its body.

        The connection goes to the address that was checked.
        """
        import httpx

        sent_at, body = int(time.time()), sent.message.body()
        headers = {
            "host": receiver.url.netloc.decode("ascii"),
            "content-type": "application/json",
            "user-agent": "perdure",
            "webhook-id": sent.id,
            "webhook-timestamp": str(sent_at),
            "webhook-signature": self._rules.signatures(sent.id, sent_at, body),
        }
        if sent.token is not None:
            headers[_TOKEN] = sent.token
        transport = httpx.AsyncHTTPTransport(verify=certificates(), trust_env=False)
        timeout = httpx.Timeout(limits.WEBHOOK_CALL.total_seconds(), connect=_CONNECT_S)
        failure: httpx.HTTPError | None = None
        async with httpx.AsyncClient(
            transport=transport, trust_env=False, timeout=timeout
        ) as client:
            for address in await self._rules.addresses(receiver):
                request = client.build_request(
                    "POST",
                    receiver.url.copy_with(host=address),
                    content=body,
                    headers=headers,
                    extensions={"sni_hostname": receiver.host},
                )
                try:
                    response = await client.send(request, stream=True, follow_redirects=False)
                except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                    failure = error
                    continue
                try:
                    yield response
                finally:
                    await response.aclose()
                return
        raise failure or httpx.ConnectError("the host has no address")


async def _end(client: Client, call: WebhookCall) -> tuple[str, datetime]:
    """Wait until a turn is over; return the run that has ended and the time of its end.

    That is another run than that of the call if an operator has reset the turn since this delivery
    began: the new run begins none, for it has this one.
    """
    run_id, delivery = call.run_id, activity.info().workflow_id
    while True:
        ended_at = await end_of_run(client, call.turn_id, run_id)
        instead = await run_instead(client, call.turn_id, run_id, delivery or "")
        if not instead:
            return run_id, ended_at
        run_id = instead


def not_delivered(host: str, status: int, headers: Mapping[str, str]) -> ApplicationError:
    """Return the failure of an attempt that the receiver did not accept."""
    if status == _GONE:
        return _failure(f"{host} wants no more webhooks (410)", is_last=True)
    if 300 <= status < 400:
        reason = f"{host} redirects elsewhere ({status}), which is not followed"
        return _failure(reason, is_last=True)
    is_last = 400 <= status < 500 and status not in _MAY_PASS
    wait_s = retry_after_s(headers)
    return _failure(f"{host} answered {status}", is_last=is_last, wait_s=wait_s)


def _failure(
    reason: str, *, is_last: bool = False, wait_s: float | None = None
) -> ApplicationError:
    """Return the failure of an attempt; unless `is_last`, there is another attempt.

    `wait_s` is the pause that the receiver asks for.
    """
    pause = None
    if wait_s is not None:
        longest = limits.WEBHOOK_LONGEST_PAUSE.total_seconds()
        pause = timedelta(seconds=min(max(wait_s, 1.0), longest))
    return ApplicationError(
        f"the webhook is not delivered: {reason}",
        type=WEBHOOK_FAILED,
        non_retryable=is_last,
        next_retry_delay=None if is_last else pause,
        category=ApplicationErrorCategory.BENIGN,
    )

"""The rate of requests: of each caller, and of each address whose caller is not known."""

from __future__ import annotations

import ipaddress
import math
import re
import time
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Self

from starlette.requests import Request

from perdure import errors, limits
from perdure.clients.gateway.auth import Auth, Caller, asked
from perdure.clients.gateway.problems import RefusedError
from perdure.temporal.recent import Recent

_RATE = re.compile(r"([0-9]{1,9})/(s|min|h)")
_UNITS = {"s": timedelta(seconds=1), "min": timedelta(minutes=1), "h": timedelta(hours=1)}


@dataclass(frozen=True)
class Rate:
    """So many requests at once, and the same number again in each such time.

    Raises:
        ConfigurationError: A number or a time is not more than zero.
    """

    count: int
    per: timedelta = timedelta(seconds=1)

    def __post_init__(self) -> None:
        if self.count < 1 or self.per <= timedelta():
            raise errors.ConfigurationError("a rate is at least one request in some time")

    @classmethod
    def of(cls, text: str) -> Self:
        """Return the rate of a text such as `20/s`, `600/min` or `5000/h`.

        Raises:
            ConfigurationError: It is none.
        """
        match = _RATE.fullmatch(text)
        if match is None:
            raise errors.ConfigurationError(
                f"{text!r} is not a rate; write it like 20/s, 600/min or 5000/h"
            )
        return cls(int(match[1]), _UNITS[match[2]])

    def __str__(self) -> str:
        """The rate in words."""
        return f"{self.count} requests in {self.per.total_seconds():g} s"


class Buckets:
    """A token bucket for each of those who are counted.

    Those who were not seen for the longest time are forgotten, and begin again with a full one.
    """

    def __init__(self, rate: Rate, at_most: int = limits.HTTP_RATED) -> None:
        self.rate = rate
        self._pause_s = rate.per.total_seconds() / rate.count
        self._levels: Recent[Hashable, tuple[float, float]] = Recent(at_most)

    def take(self, who: Hashable) -> float:
        """Take one, and return 0; or the seconds until there is one."""
        now = time.monotonic()
        level, since = self._levels.get(who) or (float(self.rate.count), now)
        level = min(float(self.rate.count), level + (now - since) / self._pause_s)
        waits_s = 0.0 if level >= 1 else (1 - level) * self._pause_s
        self._levels.put(who, (level if waits_s else level - 1, now))
        return waits_s


def limited(auth: Auth, rate: Rate | None) -> Auth:
    """Return the function that also counts the requests that it is asked about.

    Those of a caller, and those of an address without a token, are held to the rate, if there is
    one. Those of an address with a token that is not valid are always held to a rate of their own:
    they are refused anyway, and are told to wait.
    """
    known = Buckets(rate) if rate is not None else None
    failed = Buckets(Rate(limits.HTTP_FAILURES))

    def count_stranger(request: Request) -> None:
        if "authorization" in request.headers:
            _take(failed, _network_of(request), "this address with a token that is not valid")
        else:
            _take(known, _network_of(request), "this address without a token")

    async def counted(request: Request) -> Caller | None:
        try:
            caller = await asked(auth, request)
        except RefusedError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                count_stranger(request)
            raise
        if caller is None:
            count_stranger(request)
        else:
            _take(known, caller.counted_as, "this caller")
        return caller

    return counted


def _take(buckets: Buckets | None, who: Hashable, whose: str) -> None:
    """Count a request, if there is a rate.

    Raises:
        RefusedError: There were too many.
    """
    waits_s = buckets.take(who) if buckets is not None else 0
    if buckets is not None and waits_s:
        raise RefusedError(
            429,
            "TOO_MANY_REQUESTS",
            f"the gateway takes {buckets.rate} from {whose}; try again later",
            headers={"Retry-After": str(math.ceil(waits_s))},
        )


def _network_of(request: Request) -> str:
    """Return the address of a request; for IPv6 its network, which one machine has for itself."""
    host = request.client.host if request.client else ""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.version == 4:
        return host
    return str(ipaddress.ip_network((address, 64), strict=False))

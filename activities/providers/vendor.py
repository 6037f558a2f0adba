"""The base class of providers over HTTP: keys, requests, streams, and the errors in replies."""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from perdure.activities.provider import Heard, ModelRequest
from perdure.activities.providers import http_errors
from perdure.activities.providers.http import HttpClient, Parts, VendorReply
from perdure.errors import LLMError
from perdure.temporal import secrets
from perdure.values.answers import ModelAnswer
from perdure.values.reports import Usage


class HttpProvider(abc.ABC):
    """Sends requests as JSON to `path` below a base URL.

    A subclass implements the bodies of its API. `api_key_env` names the environment variable with
    the key, which is read for each request; None sends no key. `name` is used in errors.
    """

    path: ClassVar[str]

    def __init__(self, name: str, base_url: str, api_key_env: str | None) -> None:
        self._name = name
        self._http = HttpClient(name, base_url)
        self._api_key_env = api_key_env

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Send the request and wait for the whole answer.

        Raises:
            LLMError: A subclass listed in the module of the API. Its context contains `model`, and
                `status`, `retry_after_s`, `charged` and `usage` where they apply.
            ConfigurationError: The key or the base URL is unusable.
        """
        key = self._key()
        with http_errors.about(request.model):
            reply = await self._http.post_json(self.path, self._body(request), self._headers(key))
            return await asyncio.to_thread(self._read, reply, request, key)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Send the request and pass the text of the answer to `heard` as it arrives.

        Raises:
            LLMError: As for `complete`; a stream that ends before the answer is an
                `LLMUnavailableError`.
            ConfigurationError: The key or the base URL is unusable.
        """
        key = self._key()
        with http_errors.about(request.model):
            reply = await self._http.post_for_stream(
                self.path,
                self._stream_body(request),
                self._headers(key),
                self._parts(request, heard),
            )
            return await asyncio.to_thread(self._read, reply, request, key)

    async def close(self) -> None:
        """Close connections."""
        await self._http.close()

    def check_setup(self) -> None:
        """Check the key and the base URL, without sending a request.

        Raises:
            ConfigurationError: The key or the base URL is unusable.
        """
        self._key()
        self._http.check_address()

    def _key(self) -> str | None:
        return secrets.read(self._api_key_env) if self._api_key_env else None

    def _headers(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def _stream_body(self, request: ModelRequest) -> dict[str, Any]:
        return {**self._body(request), "stream": True}

    def _read(self, reply: VendorReply, request: ModelRequest, key: str | None) -> ModelAnswer:
        """Return the answer in a reply.

        Raises:
            LLMError: The reply has no answer.
        """
        if not reply.is_success:
            raise self._error(reply.status, reply.data, reply.headers, request.model, key)
        usage = self._usage(reply.data.get("usage"))
        is_before_output = (
            reply.data.get("error") and not self._output(reply.data) and usage == Usage()
        )
        with http_errors.billed(None if is_before_output else usage):
            if fault := self._fault(reply.data):
                raise self._error(reply.status, fault, reply.headers, request.model, key)
            return self._answer(reply.data, request)

    def _fault(self, data: dict[str, Any]) -> dict[str, Any] | None:
        """Return the part of a 2xx reply that contains an error; None without an error."""
        return data if data.get("error") else None

    @abc.abstractmethod
    def _body(self, request: ModelRequest) -> dict[str, Any]:
        """Return the body of a request."""

    @abc.abstractmethod
    def _parts(self, request: ModelRequest, heard: Heard) -> Parts:
        """Return the assembler of a streamed reply."""

    @abc.abstractmethod
    def _usage(self, usage: Any) -> Usage:
        """Return the tokens billed with a 2xx reply."""

    @abc.abstractmethod
    def _output(self, data: dict[str, Any]) -> object:
        """Return the output field of a 2xx reply."""

    @abc.abstractmethod
    def _answer(self, data: dict[str, Any], request: ModelRequest) -> ModelAnswer:
        """Return the answer in a 2xx reply without an error."""

    @abc.abstractmethod
    def _error(
        self, status: int, data: Any, headers: Mapping[str, str], model: str, key: str | None
    ) -> LLMError:
        """Return the error for a failed reply."""

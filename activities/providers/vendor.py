"""A provider that is an HTTP API.

What the APIs of all vendors share, from the key to the error of a reply.
"""

from __future__ import annotations

import abc
import asyncio
from collections.abc import Mapping
from typing import Any, ClassVar

from perdure.activities.provider import Heard, ModelRequest
from perdure.activities.providers import http_errors
from perdure.activities.providers.http import HttpClient, Parts, Reply
from perdure.errors import LLMError
from perdure.temporal import secrets
from perdure.values.answers import ModelAnswer
from perdure.values.reports import Usage


class HttpProvider(abc.ABC):
    """Asks models by posting JSON to `path` below a base URL.

    A subclass knows the bodies of its API. `api_key_env` names the environment variable with the
    key, which is read when a request is made; None sends no key. `name` is for error texts.
    """

    path: ClassVar[str]

    def __init__(self, name: str, base_url: str, api_key_env: str | None) -> None:
        self._name = name
        self._http = HttpClient(name, base_url)
        self._api_key_env = api_key_env

    async def complete(self, request: ModelRequest) -> ModelAnswer:
        """Ask, and wait for the whole answer.

        Raises:
            LLMError: The docs of the API's module say which subclass. Its context holds `model`,
                and `status`, `retry_after_s`, `charged` and `usage` where they apply.
            ConfigurationError: The key or the base URL cannot work.
        """
        key = self._key()
        with http_errors.about(request.model):
            reply = await self._http.post_json(self.path, self._body(request), self._headers(key))
            return await asyncio.to_thread(self._read, reply, request, key)

    async def stream(self, request: ModelRequest, heard: Heard) -> ModelAnswer:
        """Ask, and give the words of the answer to `heard` as they come.

        Raises:
            LLMError: As `complete` does; a stream that ends before the answer is an
                `LLMUnavailableError`.
            ConfigurationError: The key or the base URL cannot work.
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
        """Whether the key is there and the base URL is one. Nothing is sent.

        Raises:
            ConfigurationError: The key or the base URL cannot work.
        """
        self._key()
        self._http.check_address()

    def _key(self) -> str | None:
        return secrets.read(self._api_key_env) if self._api_key_env else None

    def _headers(self, key: str | None) -> dict[str, str]:
        return {"authorization": f"Bearer {key}"} if key else {}

    def _stream_body(self, request: ModelRequest) -> dict[str, Any]:
        return {**self._body(request), "stream": True}

    def _read(self, reply: Reply, request: ModelRequest, key: str | None) -> ModelAnswer:
        """The answer in a reply.

        Raises:
            LLMError: It holds none.
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
        """The part of a 2xx that holds an error."""
        return data if data.get("error") else None

    @abc.abstractmethod
    def _body(self, request: ModelRequest) -> dict[str, Any]:
        """The body of a request."""

    @abc.abstractmethod
    def _parts(self, request: ModelRequest, heard: Heard) -> Parts:
        """What puts a stream together."""

    @abc.abstractmethod
    def _usage(self, usage: Any) -> Usage:
        """The tokens that a 2xx was billed with."""

    @abc.abstractmethod
    def _output(self, data: dict[str, Any]) -> object:
        """The field of a 2xx that holds its output."""

    @abc.abstractmethod
    def _answer(self, data: dict[str, Any], request: ModelRequest) -> ModelAnswer:
        """The answer in a 2xx without an error."""

    @abc.abstractmethod
    def _error(
        self, status: int, data: Any, headers: Mapping[str, str], model: str, key: str | None
    ) -> LLMError:
        """The error that a reply means."""

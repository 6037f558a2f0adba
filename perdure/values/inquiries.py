"""What a server asks people while it carries out a call, and what they answer."""

from __future__ import annotations

from operator import not_
from typing import Literal

from pydantic import Field, JsonValue

from perdure.base import Wire


class LoginRequest(Wire):
    """The login of a person at an MCP server, which acts for that person.

    Attributes:
        url: The address of the server.
        scopes: What is asked for; empty for what the server says itself.
        client_id: The client as which the person logs in; empty for one that registers itself.
        secret_env: The environment variable with the secret of the client, in the process in which
            the login ends; empty without a secret.
    """

    url: str
    scopes: tuple[str, ...] = Field(default=(), exclude_if=not_)
    client_id: str = Field(default="", exclude_if=not_)
    secret_env: str = Field(default="", exclude_if=not_)


class ServerQuestion(Wire):
    """One question of a server.

    Attributes:
        key: The server's key of the question, under which it gets the answer.
        text: The server's words.
        form: The JSON schema of what is to be filled in; None if the server asks for consent alone.
        login: The login that is asked for; None if the server asks something itself.
    """

    key: str
    text: str
    form: dict[str, JsonValue] | None = None
    login: LoginRequest | None = Field(default=None, exclude_if=not_)


class ServerAnswer(Wire):
    """The answer to a question of a server, by the key of the question.

    Attributes:
        key: The key.
        action: Whether a person has answered, or declined to; `cancel` if nobody has answered in
            time.
        content: What a person has filled in, by field; empty without a form.
    """

    key: str
    action: Literal["accept", "decline", "cancel"]
    content: dict[str, JsonValue] = Field(default={}, exclude_if=not_)


class Inquiry(Wire):
    """What a server asks people before it goes on with a call.

    Attributes:
        server: The name of the server.
        questions: Its questions, each with a key of its own.
        state: What the server wants back with the answers; empty if it keeps that itself.
    """

    server: str
    questions: tuple[ServerQuestion, ...]
    state: str = Field(default="", exclude_if=not_)


class GivenAnswers(Wire):
    """What people have answered so far in a call, for the server.

    Attributes:
        given: Their answers.
        state: What the server has sent with its questions.
    """

    given: tuple[ServerAnswer, ...] = Field(default=(), exclude_if=not_)
    state: str = Field(default="", exclude_if=not_)

"""The options of a fork."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from pydantic import JsonValue

from perdure.agents.agent import Agent
from perdure.values.budgets import Budget
from perdure.values.client_tools import ClientTool
from perdure.values.model_retry import ModelRetryPolicy
from perdure.values.options import RequestOptions


class ForkOptions(TypedDict, total=False):
    """The options of a fork, which `Turn.fork` describes."""

    say: str | None
    agent: Agent[Any] | str | None
    model: str | None
    budget: Budget | None
    max_iterations: int | None
    model_retry: ModelRetryPolicy | None
    labels: Mapping[str, str] | None
    instructions: str | None
    client_tools: Sequence[ClientTool] | None
    shared_state: Mapping[str, JsonValue] | None
    options: RequestOptions | None
    output_schema: Mapping[str, JsonValue] | None
    live: bool | None
    on_done: str | None
    on_wait: str | None
    version: str | None


UNCHANGED = ForkOptions(
    say=None,
    agent=None,
    model=None,
    budget=None,
    max_iterations=None,
    model_retry=None,
    labels=None,
    instructions=None,
    client_tools=None,
    shared_state=None,
    options=None,
    output_schema=None,
    live=None,
    on_done=None,
    on_wait=None,
    version=None,
)
"""The defaults: the fork has what the turn has, and its user says nothing more."""

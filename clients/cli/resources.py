"""What is alike in the commands for turns, sessions, batches and schedules.

Each of the four has a group of commands. A command of one of these kinds is declared by a function
that gets the handle, or the client, instead of an id and an address.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import click

from perdure.clients.cli import options
from perdure.clients.cli.common import Display, connected
from perdure.clients.cli.exits import DONE
from perdure.clients.cli.group import Command, FirstSentence, examples

if TYPE_CHECKING:
    from perdure.clients.cli.drawing.listing import EntryTable
    from perdure.clients.client import AgentClient

HandleOf = Callable[["AgentClient", str], Any]


class ResourceGroup(FirstSentence, click.Group):
    """The commands for turns, sessions, batches or schedules, by the name of one of them."""

    command_class = Command

    def __init__(self, *args: Any, handle: HandleOf, **attributes: Any) -> None:
        """Create the group.

        `handle` returns the handle for an id; `attributes` are those of `click.Group`.
        """
        super().__init__(*args, **attributes)
        self._handle = handle

    @property
    def noun(self) -> str:
        """The word for one of them, such as `session`."""
        assert self.name is not None
        return self.name

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order in which they were added."""
        return list(self.commands)

    def for_id(
        self, *lines: str, json: str
    ) -> Callable[[Callable[..., Awaitable[int]]], click.Command]:
        """Return a decorator for a command about one resource.

        The function gets the handle, the `Display` and the other options, and returns the exit
        code. `lines` are examples, and `json` says what `--json` prints.
        """

        def decorate(function: Callable[..., Awaitable[int]]) -> click.Command:
            @self.command(function.__name__.replace("_", "-"), epilog=examples(*lines))
            @click.argument(self.noun, help=f"The {self.noun}'s id.")
            @options.json_lines(json)
            @options.ANY_QUEUE
            @functools.wraps(function)
            async def command(as_json: bool, address: str | None, **values: Any) -> int:
                handle = self._handle(await connected(address), values.pop(self.noun))
                return await function(handle, Display(as_json, address=address), **values)

            return command

        return decorate

    def action(
        self, *lines: str, json: str
    ) -> Callable[[Callable[..., Awaitable[tuple[dict[str, Any], str]]]], click.Command]:
        """Return a decorator for a command that does something with one resource.

        The function gets the handle and the other options. It returns what `--json` prints after
        the id, and a sentence for people. `lines` and `json` are as for `for_id`.
        """

        def decorate(
            function: Callable[..., Awaitable[tuple[dict[str, Any], str]]],
        ) -> click.Command:
            @functools.wraps(function)
            async def reported(handle: Any, display: Display, **values: Any) -> int:
                value, text = await function(handle, **values)
                return display.report({self.noun: handle.id, **value}, text)

            return self.for_id(*lines, json=json)(reported)

        return decorate

    def listing(
        self,
        *lines: str,
        limit: int | None = 20,
        queues: options.Decorator[Any] = options.ANY_QUEUE,
    ) -> Callable[[Callable[..., EntryTable[Any]]], click.Command]:
        """Return a decorator for the command `list`.

        The function gets the client, the filters that its options select, and `limit`: one more
        than are printed, to find out whether there are more; None for all.
        """

        def decorate(function: Callable[..., EntryTable[Any]]) -> click.Command:
            @self.command("list", epilog=examples(*lines))
            @click.option(
                "--limit",
                type=options.Count(min=1),
                default=limit,
                metavar="N",
                help=f"At most this many (default: {limit or 'all'}).",
            )
            @options.json_lines(f"Print a line of JSON for each {self.noun}.")
            @queues
            @functools.wraps(function)
            async def command(
                limit: int | None, as_json: bool, address: str | None, **filters: Any
            ) -> int:
                client = await connected(address)
                read = None if limit is None else limit + 1
                table = function(client, limit=read, **filters)
                kind = f"such {self.noun}" if any(filters.values()) else f"{self.noun} yet"
                await table.show(limit, as_json=as_json, none=f"there is no {kind}")
                return DONE

            return command

        return decorate


def cancelled(
    noun: str, id: str, was_running: bool, otherwise: str = "is over already"
) -> tuple[dict[str, Any], str]:
    """Return what `cancel` prints: whether there was something to stop."""
    from perdure.text import word

    name = f"{noun} {word(id)}"
    text = f"asked {name} to stop" if was_running else f"{name} {otherwise}"
    return {"asked": was_running}, text

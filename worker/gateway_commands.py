"""The commands that serve agents to others: `perdure serve` over HTTP, and `perdure mcp`.

Like all commands, they import their modules when they run, so that the help is quick.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from perdure import limits
from perdure.clients.cli import options
from perdure.clients.cli.common import connected
from perdure.clients.cli.group import Command, examples

if TYPE_CHECKING:
    from perdure.clients.gateway import Rate

_provider = functools.partial(click.option, cls=options.SectionOption, section="Identity provider")


class RateOption(click.ParamType["Rate"]):
    """A rate of requests such as `20/s`."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Rate:
        """Return the rate, or fail with a usage error."""
        from perdure import errors
        from perdure.clients.gateway import Rate

        try:
            return Rate.of(value)
        except errors.ConfigurationError as error:
            self.fail(error.message, param, ctx)


_PROVIDER = options.together(
    _provider("--oidc", "issuer", metavar="ISSUER", help="Take access tokens of this issuer too."),
    _provider(
        "--audience",
        "audiences",
        multiple=True,
        metavar="NAME",
        help="What its tokens name this gateway; may be repeated.",
    ),
    _provider(
        "--claims",
        "claims_file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="A TOML file that says which claims are the name, the tenant and the permissions"
        " (default: everybody without a tenant, with the roles of the claim roles).",
    ),
    _provider(
        "--client-id",
        metavar="ID",
        help="The client as which the page logs people in; its secret is in PERDURE_OIDC_SECRET.",
    ),
    _provider(
        "--url",
        metavar="URL",
        help="The address of the gateway for its callers, such as https://agents.example.com.",
    ),
)


@click.command(
    cls=Command,
    epilog=examples(
        "perdure serve",
        "perdure serve --tokens tokens.toml --host 0.0.0.0 --port 8080",
        "perdure serve --hooks hooks.toml",
        "perdure serve --oidc https://id.example.com --audience perdure --rate 20/s",
    ),
)
@options.listening(8000)
@click.option(
    "--tokens",
    "tokens_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Who may call: a TOML file with the SHA-256 of bearer tokens (default: the holder of"
    " PERDURE_TOKEN, or of a token that is made and printed).",
)
@click.option(
    "--agent",
    "agents",
    multiple=True,
    metavar="NAME",
    help="An agent that OpenAI's API lists as a model; may be repeated (default: those of recent"
    " turns).",
)
@click.option(
    "--a2a",
    "a2a_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The agents to serve over A2A as well: a TOML file with their names and descriptions.",
)
@click.option(
    "--hooks",
    "hooks_file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The hooks to serve: a TOML file that says which signed requests start what.",
)
@click.option(
    "--max-connections",
    type=click.IntRange(1),
    default=limits.HTTP_CONNECTIONS,
    metavar="N",
    help=f"The most connections of the process (default: {limits.HTTP_CONNECTIONS}).",
)
@click.option(
    "--max-streams",
    type=click.IntRange(1),
    default=limits.HTTP_STREAMS,
    metavar="N",
    help=f"The most open streams and long polls of the process (default: {limits.HTTP_STREAMS}).",
)
@click.option(
    "--max-streams-of-caller",
    type=click.IntRange(1),
    default=limits.HTTP_STREAMS_OF_CALLER,
    metavar="N",
    help=f"The same for one caller (default: {limits.HTTP_STREAMS_OF_CALLER}).",
)
@click.option(
    "--rate",
    type=RateOption(),
    metavar="N/TIME",
    help="The most requests of a caller, such as 20/s, 600/min or 5000/h (default: no limit).",
)
@click.option(
    "--temporal-ui",
    envvar="PERDURE_TEMPORAL_UI",
    metavar="URL",
    help="Temporal's web UI, to which the page links (default: PERDURE_TEMPORAL_UI, if set).",
)
@_PROVIDER
@options.CONNECTION
async def serve(
    host: str,
    port: int,
    tokens_file: Path | None,
    agents: tuple[str, ...],
    a2a_file: Path | None,
    hooks_file: Path | None,
    max_connections: int,
    max_streams: int,
    max_streams_of_caller: int,
    rate: Rate | None,
    temporal_ui: str | None,
    issuer: str | None,
    audiences: tuple[str, ...],
    claims_file: Path | None,
    client_id: str | None,
    url: str | None,
    address: str | None,
    task_queue: str,
) -> int:
    """Serve turns over HTTP: REST, server-sent events, and a page.

    SIGTERM or Ctrl-C stops the server. Any number of processes can serve the same turns. Requests
    need a bearer token. /ui/ is a page for people, /openapi.json describes all operations.
    """
    from perdure import errors
    from perdure.clients.cli.drawing.screen import note

    try:
        from perdure.clients import gateway
        from perdure.clients.gateway import known_callers, serving
    except ImportError:
        raise errors.ConfigurationError(
            "perdure serve needs more packages: pip install 'perdure[http]'"
        ) from None
    identity = known_callers.provider(issuer, audiences, claims_file, client_id, url)
    auth, fragment, tenants = known_callers.callers(tokens_file, identity)
    hooks = () if hooks_file is None else gateway.hooks_from(hooks_file, tenants)
    client = await connected(address, task_queue)
    if identity is not None:
        await identity.check()
    application = gateway.app(
        client,
        auth,
        agents=agents,
        a2a_agents=() if a2a_file is None else gateway.a2a_agents_from(a2a_file),
        hooks=hooks,
        max_streams=max_streams,
        max_streams_of_caller=max_streams_of_caller,
        temporal_ui=temporal_ui,
        identity=identity,
        rate=rate,
        url=url,
    )
    await serving.serve(
        application, host, port, fragment=fragment, max_connections=max_connections, say=note
    )
    return 0


@click.command(
    cls=Command,
    epilog=examples(
        "perdure hooks hooks.toml --url https://agents.example.com",
        "perdure hooks hooks.toml --path /hooks/stripe --body event.json",
    ),
)
@click.argument(
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The TOML file of `perdure serve --hooks`.",
)
@click.option(
    "--url",
    default="http://127.0.0.1:8000",
    metavar="URL",
    help="The address of the gateway for its senders (default: http://127.0.0.1:8000).",
)
@click.option("--path", metavar="PATH", help="Show what a delivery to this path would start.")
@click.option(
    "--body",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="The body of the delivery, as it was recorded.",
)
@click.option(
    "--header",
    "headers",
    type=options.HEADER,
    multiple=True,
    metavar="NAME:VALUE",
    help="A header of the delivery; may be repeated.",
)
async def hooks(
    file: Path, url: str, path: str | None, body: Path | None, headers: tuple[tuple[str, str], ...]
) -> int:
    """Check a file of hooks, and show what a delivery would start.

    Nothing is started, and the signature of the delivery is not verified.
    """
    from perdure import errors
    from perdure.clients.cli.drawing.screen import put

    if (path is None) != (body is None):
        raise errors.InvalidRequestError("give --path and --body, or none of them")
    try:
        from perdure.clients.gateway import hooks_from
        from perdure.clients.gateway.hooks.checking import addresses, outcome
    except ImportError:
        raise errors.ConfigurationError(
            "perdure hooks needs more packages: pip install 'perdure[http]'"
        ) from None
    declared = hooks_from(file)
    if path is None or body is None:
        for address, what in addresses(declared, url):
            put(f"{address}  {what}")
    else:
        put(outcome(declared, path, dict(headers), body))
    return 0


@click.command(cls=Command)
@click.option(
    "--agent",
    "agents",
    metavar="NAME",
    multiple=True,
    help="Offer only this agent; may be repeated.",
)
@click.option(
    "--no-approvals",
    is_flag=True,
    help="Do not offer to approve or deny calls, to add to budgets or to resume turns.",
)
@options.CONNECTION
async def mcp(
    agents: tuple[str, ...], no_approvals: bool, address: str | None, task_queue: str
) -> int:
    """Run an MCP server on standard input and output.

    An editor or an assistant starts the server and uses its tools to start turns, wait for them and
    decide about calls.
    """
    from perdure import errors

    try:
        from perdure.clients.gateway.mcp.server import serve
    except ImportError:
        raise errors.ConfigurationError(
            "perdure mcp needs the package mcp: pip install 'perdure[mcp]'"
        ) from None
    await serve(
        await connected(address, task_queue), agents, approvals=not no_approvals
    ).run_stdio_async()
    return 0

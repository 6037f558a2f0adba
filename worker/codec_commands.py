"""The command `perdure codec`: a codec server for Temporal's web UI, and new keys.

Like all commands, it imports its modules when it runs, so that the help is quick.
"""

from __future__ import annotations

import click

from perdure import limits
from perdure.clients.cli import options
from perdure.clients.cli.group import Command, examples


@click.command(
    cls=Command,
    epilog=examples(
        "perdure codec --new-key k1",
        "perdure codec --origin http://localhost:8233",
        "perdure codec --host :: --origin https://ui.example.com --token-env TOKEN",
    ),
)
@options.listening(8081)
@click.option(
    "--origin",
    "origins",
    multiple=True,
    metavar="URL",
    help="A page that may ask in a browser: the address of Temporal's web UI; may be repeated.",
)
@click.option(
    "--token-env",
    metavar="NAME",
    help="The environment variable with the bearer token of all requests; necessary unless the"
    " address is of this machine only.",
)
@click.option(
    "--new-key",
    metavar="NAME",
    help="Print a new key for PERDURE_ENCRYPTION_KEYS, and serve nothing.",
)
async def codec(
    host: str, port: int, origins: tuple[str, ...], token_env: str | None, new_key: str | None
) -> int:
    """Decrypt what Temporal's web UI and command line show.

    It has the keys of PERDURE_ENCRYPTION_KEYS or of PERDURE_ENCRYPTION_KEYS_FILE. Who may ask it
    can read every turn.
    """
    from perdure import errors
    from perdure.clients.cli.drawing.screen import note, put
    from perdure.temporal import data_converter, secrets
    from perdure.temporal.encryption import keys as encryption_keys
    from perdure.text import is_loopback

    if new_key is not None:
        put(encryption_keys.new_entry(new_key))
        return 0
    try:
        from perdure.clients.gateway import codec_server, serving
    except ImportError:
        raise errors.ConfigurationError(
            "perdure codec needs more packages: pip install 'perdure[http]'"
        ) from None
    if token_env is None and not is_loopback(host):
        raise errors.ConfigurationError(
            f"{host} can be reached from other machines, so a token is needed; name its variable"
            " with --token-env"
        )
    token = None if token_env is None else secrets.read(token_env)
    application = codec_server.codec_server(data_converter.chosen(), origins, token)
    await serving.serve(
        application,
        host,
        port,
        fragment="",
        max_connections=limits.HTTP_CONNECTIONS,
        say=note,
    )
    return 0

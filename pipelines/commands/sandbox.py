"""`connector sandbox`: the service of service-api.md on loopback, with faults on request."""

from pathlib import Path

import click

from connector.errors import ConfigurationError


@click.command("sandbox")
@click.option("--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="0 takes a free one.")
@click.option(
    "--token", envvar="CONNECTOR_SANDBOX_TOKEN", default="sandbox", show_default=True, help="The token it takes."
)
@click.option("--data", type=click.Path(path_type=Path, file_okay=False), help="Keep the data here; else in memory.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a switch or a fault. Repeatable.")
def sandbox_command(port: int, token: str, data: Path | None, settings: tuple[str, ...]) -> None:
    """Serve an imitation of the service on this machine, to try jobs without a token of your own."""
    from connector import sandbox

    try:
        sandbox.serve(port, token, data, settings)
    except ValueError as error:
        raise ConfigurationError(str(error)) from None
    except OSError as error:
        raise ConfigurationError(f"cannot serve on port {port}: {error.strerror}") from None

"""`deltaflow connect-server`: a Spark Connect server whose clients know the format `delta`."""

from __future__ import annotations

import ipaddress
import os
import secrets
import signal
import sys
import threading
from collections.abc import Mapping, Sequence

import click
from py4j.protocol import Py4JJavaError

from deltaflow.api import session
from deltaflow.errors import RegistrationError
from deltaflow.spark import connect_service

_ISOLATION = {
    "spark.sql.artifact.isolation.enabled": "true",
    "spark.sql.artifact.isolation.alwaysApplyClassloader": "true",
}
"""What a client adds by addArtifacts stays in its session, as with PySpark's own local server."""


@click.command("connect-server")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", default=15002, show_default=True, help="The port; 0 for any free one.")
@click.option("--master", help="Spark's master, such as spark://host:7077.")
@click.option("--conf", "settings", multiple=True, metavar="NAME=VALUE", help="A setting of Spark.")
@click.option("--no-token", is_flag=True, help="Let in everybody who reaches the port.")
def connect_server(host: str, port: int, master: str | None, settings: Sequence[str], no_token: bool) -> None:
    """Serves clients of Spark Connect, which need nothing of deltaflow to use Delta tables.

    A client has to send a token: that of SPARK_CONNECT_AUTHENTICATE_TOKEN if the variable is set, otherwise
    one that the server makes and prints. Whoever has it runs code as the user of the server.

    SIGINT (Ctrl-C) and SIGTERM end the server: it stops the streams of its clients and closes its port. The
    exit code is then 0.
    """
    parsed = _parsed(settings)
    shown = "" if no_token else _token()
    if no_token:
        os.environ.pop(connect_service.TOKEN_VARIABLE, None)
        if not _is_loopback(host):
            click.echo(f"There is no token: whoever reaches {host} can run code as this user.", err=True)
    serve(host, port, master, parsed, shown)


def serve(host: str, port: int, master: str | None, settings: Mapping[str, str], parameters: str) -> None:
    """Serves until SIGINT or SIGTERM. Prints the URL for clients when they can connect.

    `parameters` are a part of the URL. RegistrationError if the port cannot be had.
    """
    stopping = threading.Event()
    _set_at_signals(stopping)
    # The Python of clients' functions is the server's, unless somebody has chosen another one.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    own = {connect_service.HOST: host, connect_service.PORT: str(port)}
    spark = session("deltaflow connect-server", master=master, config={**_ISOLATION, **settings, **own})
    _set_at_signals(stopping)  # once more: PySpark has put a handler of its own in place of that for SIGINT
    try:
        try:
            bound = connect_service.start(spark)
        except Py4JJavaError as error:
            reason = error.java_exception.getMessage()
            raise RegistrationError(f"Spark's server cannot listen at {host}:{port}: {reason}") from error
        # PySpark's client sends a token without TLS to this name alone.
        name = "localhost" if _is_loopback(host) else host
        click.echo(f"Spark {spark.version} with Delta tables serves sc://{name}:{bound}{parameters}")
        stopping.wait()
        click.echo("Stopping.", err=True)
        connect_service.stop(spark)
    finally:
        spark.stop()


def _set_at_signals(stopping: threading.Event) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopping.set())


def _token() -> str:
    """Sees to it that there is a token. The parameter of the URL that has it; empty if the user knows it.

    It goes by the environment: the JVM has it from there, and so have the processes in which clients'
    functions run, which connect back.
    """
    if os.environ.get(connect_service.TOKEN_VARIABLE):
        return ""
    token = os.environ[connect_service.TOKEN_VARIABLE] = secrets.token_urlsafe(24)
    return f"/;token={token}"


def _parsed(settings: Sequence[str]) -> dict[str, str]:
    parsed = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not separator or not name:
            raise click.BadParameter(f"{setting!r} is not NAME=VALUE.", param_hint="--conf")
        if name == connect_service.TOKEN:
            raise click.BadParameter(
                f"Everybody on this machine can read a command line. Set {connect_service.TOKEN_VARIABLE}.",
                param_hint="--conf",
            )
        parsed[name] = value
    return parsed


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"

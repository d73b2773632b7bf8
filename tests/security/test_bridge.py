"""The port by which Spark's JVM calls Python is for that JVM alone."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_callback_port_asks_for_the_secret(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltaflow.spark.bridge.dispatcher import Dispatcher

    gateway: Any = spark.sparkContext._gateway
    address = gateway._callback_server.server_socket.getsockname()
    assert address[0] == "127.0.0.1"
    assert gateway.callback_server_parameters.auth_token
    calls: list[str] = []
    monkeypatch.setattr(Dispatcher, "apply", lambda self, method, request: calls.append(method))
    for proxy in [proxy for proxy in gateway.gateway_property.pool if proxy.startswith("p")]:
        for token in ("", "A\nwrong\n"):
            with socket.create_connection(address, timeout=20) as connection:
                connection.sendall(f"{token}c\n{proxy}\napply\nswrite.abort\ns{{}}\ne\n".encode())
                connection.shutdown(socket.SHUT_WR)
                answer = b"".join(iter(lambda taken=connection: taken.recv(1_000), b""))
                assert b"yv" not in answer
    assert calls == []

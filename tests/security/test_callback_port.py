"""The one port that deltaflow opens, by which Spark's JVM calls Python, is for that JVM alone."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_the_callback_port_asks_for_the_secret(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltaflow.spark.bridge.dispatcher import Dispatcher

    gateway: Any = spark.sparkContext._gateway
    address = gateway._callback_server.server_socket.getsockname()
    assert address[0] == "127.0.0.1"
    secret = gateway.callback_server_parameters.auth_token
    assert len(secret) >= 32
    # Each registration of the process gives the dispatcher another name.
    proxy, *_ = [
        name for name, kept in gateway.gateway_property.pool.dict.items() if isinstance(kept, Dispatcher)
    ]
    calls: list[str] = []

    def apply(self: Dispatcher, method: str, request: str) -> str:
        calls.append(method)
        return "answered"

    monkeypatch.setattr(Dispatcher, "apply", apply)

    def answer(token: str) -> bytes:
        received = b""
        # A connection that is refused ends at any moment, while the rest is sent, too.
        with socket.create_connection(address, timeout=60) as connection, suppress(OSError):
            connection.sendall(f"{token}c\n{proxy}\napply\nswrite.abort\ns{{}}\ne\n".encode())
            connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(1_000):
                received += more
        return received

    for token in ("", "A\n\ne\n", "A\nwrong\ne\n", f"A\n{secret[:-1]}\ne\n"):
        assert b"answered" not in answer(token)
    assert calls == []
    assert b"answered" in answer(f"A\n{secret}\ne\n")
    assert calls == ["write.abort"]


def test_the_jvm_has_the_secret(spark: SparkSession, tmp_path: Path) -> None:
    path, seen = str(tmp_path / "t"), list[int]()
    spark.range(3).write.format("delta").save(path)
    writer = spark.readStream.format("delta").load(path).writeStream
    query = writer.foreachBatch(lambda rows, _: seen.append(rows.count())).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    assert seen == [3]

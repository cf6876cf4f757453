"""The command `altneu connect`: one Spark that many short processes share, as a Spark Connect server. Ctrl-C stops it.

A client (`[spark] master = "sc://host:port"`, or `ALTNEU_MASTER`) has no JVM to start: an Airflow task begins its work
after one second instead of ten, and what the server has compiled once stays compiled. All clients share its cores and
memory, and every client may do what the server may. Without `--host` it listens only on this machine; beyond it, it
accepts only clients that send its token. Spark reads the token from the environment, because everybody could see it on
a command line.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

from pyspark import SparkContext

from ..errors import RunFailed, UsageError
from ..home.home import Home
from ..secret import read_secret
from ..storage import code_shipping
from ..storage.network import is_listening
from ..storage.session import PORT, REMOTE, start_session
from ..storage.spark_connect_client import TOKEN, is_loopback

MESSAGE_MB = 512  # the greatest size of one answer or one local table


def serve_connect(home: Home, host: str = "127.0.0.1", port: int = PORT, say: Callable[[str], None] = print) -> None:
    """Start a server with the home's Spark settings, and wait for Ctrl-C or SIGTERM.

    Raises:
        UsageError: The port is taken, the server would listen beyond this machine without a token, or the executors of
            its master lack altneu.
        RunFailed: The JVM of the server has ended.
    """
    master = home.config.spark.master
    if master is not None and master.startswith(REMOTE):
        master = None  # this setting is the address of the server itself
    token = read_secret(TOKEN)
    if token:
        os.environ[TOKEN] = token
    elif not is_loopback(host):
        raise UsageError(
            f"at {host} other machines reach the server and may do what it may: it needs a token, and none is set.",
            f"export {TOKEN}=$(openssl rand -hex 32)   (or {TOKEN}_FILE=…), here and where the clients are",
        )
    if is_listening(host, port):
        raise UsageError(f"port {port} is taken.", f"altneu connect --port {port + 1}")
    server = {
        "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
        "spark.connect.grpc.binding.address": host,
        "spark.connect.grpc.binding.port": str(port),
        "spark.connect.grpc.maxInboundMessageSize": str(MESSAGE_MB * 2**20),
        "spark.scheduler.mode": "FAIR",
    }
    done = threading.Event()
    spark = start_session(master, home.config.spark.conf | server)
    if spark.conf.get(code_shipping.CODE, None) is None and code_shipping.code_archive.cache_info().currsize:
        spark.stop()
        raise UsageError(
            f"the executors of {master} have no altneu, or another version, and the clients do not send theirs.",
            "install it there; or set in the altneu.toml of the server: "
            f'[spark] conf = {{ "{code_shipping.CODE}" = "{code_shipping.SENT}" }}',
        )
    for number in (signal.SIGINT, signal.SIGTERM):  # after PySpark has set a handler of its own
        signal.signal(number, lambda number, frame: done.set())
    say(f"Spark {spark.version} ({spark.sparkContext.master}) listens at sc://{host}:{port}")
    say(f'clients: ALTNEU_MASTER=sc://{host}:{port}, or [spark] master = "sc://{host}:{port}" in altneu.toml')
    if token:
        say(f"it requires the token of {TOKEN}")
    say("Ctrl-C stops it")
    java: Any = SparkContext._gateway
    while not done.wait(1):
        if java.proc.poll() is not None:
            raise RunFailed("the server's JVM has ended (killed, or out of memory).", "altneu connect")
    spark.stop()
    say("the server has stopped; what was published stays")

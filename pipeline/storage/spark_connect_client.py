"""The connection of a client to a Spark Connect server: its address, its token, TLS, and the errors.

An address is `sc://host:port`. A server that listens beyond its own machine requires a token (`TOKEN`, from the
environment). The token is sent unencrypted only to this machine. To any other machine it is sent over TLS, for which
the server needs a proxy, because Spark itself does not speak TLS; or unencrypted, if the address ends in
`/;use_ssl=false`. `GRPC_DEFAULT_SSL_ROOTS_FILE_PATH` names the certificates of a private authority. Source: Spark's
client connection string.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import time
from typing import Any

import grpc
from pyspark.errors import PySparkException, PySparkValueError
from pyspark.sql import SparkSession
from pyspark.sql.connect.client import DefaultChannelBuilder
from pyspark.sql.connect.client.retries import DefaultPolicy, RetryPolicy, RetryPolicyState

from ..errors import Unavailable, UsageError
from ..secret import read_secret
from ..secret_masking import mask_secrets
from . import code_shipping
from .network import is_listening

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
SECONDS = 10  # seconds to wait for a connection
PATIENCE = 25  # seconds to wait for a server that has stopped answering, since the network may be interrupted
WAIT_MS = 500  # milliseconds between two tries
# The interval in which the client checks that a working server still exists. Without it the client would wait forever
# for a lost machine, which closes no connection. Spark's server closes the connection if asked more often than every
# five minutes.
ALIVE_MS = 330_000
REPEAT_COMMAND = "run the same command again"
_FORGOTTEN = "INVALID_HANDLE.SESSION_"  # the prefix of Spark's errors about a session that the server does not have


def is_loopback(host: str) -> bool:
    """Tell whether only this machine can reach an address.

    >>> [is_loopback(each) for each in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "spark.example.com")]
    [True, True, True, False, False]
    """
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


class _SparkChannel(DefaultChannelBuilder):
    """A channel that may send a token unencrypted. Spark's own never does, and encrypts even to 127.0.0.1."""

    @property
    def bearer_token(self) -> str | None:
        parameter = self.getDefault(self.PARAM_TOKEN, None)
        return parameter or read_secret(TOKEN)

    @property
    def is_encrypted(self) -> bool:
        """Tell whether the connection is encrypted."""
        choice = self.getDefault(self.PARAM_USE_SSL, "").lower()
        return choice == "true" or (choice != "false" and self.bearer_token is not None and not is_loopback(self.host))

    def toChannel(self) -> grpc.Channel:
        token = self.bearer_token
        if self.is_encrypted:
            credentials = grpc.ssl_channel_credentials()
            if token:
                call = grpc.access_token_call_credentials(token)
                credentials = grpc.composite_channel_credentials(credentials, call)
            return self._secure_channel(self.endpoint, credentials)
        channel = self._insecure_channel(self.endpoint)
        return grpc.intercept_channel(channel, _BearerInterceptor(token)) if token else channel


class _BearerInterceptor(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[misc]
    grpc.UnaryStreamClientInterceptor,  # type: ignore[misc]
    grpc.StreamUnaryClientInterceptor,  # type: ignore[misc]
):
    """An interceptor that sends a token over a connection without credentials."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def _send_with_token(self, go_on: Any, details: Any, request: Any) -> Any:
        return go_on(details._replace(metadata=[*(details.metadata or ()), self._header]), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = _send_with_token


class _RetryPolicy(RetryPolicy):
    """The retry policy for a server that does not answer.

    A call is tried again for `PATIENCE` seconds, and then raises `Unavailable`; PySpark's own policy would wait for ten
    minutes. Later calls, which clean up, are tried once. A restarted server has lost the session, which is an error at
    once.
    """

    def __init__(self, named: str) -> None:
        super().__init__(initial_backoff=WAIT_MS)
        self.server_name, self.is_lost = named, False

    def can_retry(self, exception: BaseException) -> bool:
        silent = isinstance(exception, grpc.RpcError) and exception.code() == grpc.StatusCode.UNAVAILABLE
        return silent or _FORGOTTEN in str(exception)

    def to_state(self) -> RetryPolicyState:
        return _RetryState(self)


class _RetryState(RetryPolicyState):
    """The state of the retries of one call."""

    _until: float | None = None

    def __init__(self, policy: _RetryPolicy) -> None:
        super().__init__(policy)
        self._server_policy = policy

    def next_attempt(self, exception: BaseException | None = None) -> int | None:
        server = f"the Spark Connect server at {self._server_policy.server_name}"
        if _FORGOTTEN in str(exception):
            self._server_policy.is_lost = True
            raise Unavailable(
                f"{server} has lost the session: it was restarted, or has ended the session.", REPEAT_COMMAND
            )
        now = time.monotonic()
        self._until = self._until or now + PATIENCE
        if self._server_policy.is_lost or now >= self._until:
            self._server_policy.is_lost = True
            raise Unavailable(
                f"{server} does not answer any more.", f"altneu connect, if it has ended; then {REPEAT_COMMAND}"
            )
        return super().next_attempt(exception)


def connect_session(master: str, settings: dict[str, str]) -> SparkSession:
    """Open the session of this process at a Spark Connect server.

    Raises `Unavailable` where no server answers, and `UsageError` where the address is malformed or the server refuses
    the token.
    """
    from pyspark.sql.connect.session import SparkSession as Remote

    named = mask_secrets(master)
    try:
        channel = _SparkChannel(master, _channel_options())
        host, _, port = channel.endpoint.rpartition(":")
        reached = int(port) <= 65535
    except (PySparkValueError, ValueError):
        raise UsageError(f"{named} is not the address of a Spark Connect server.", "sc://host:port") from None
    if not reached or not is_listening(host, int(port)):
        raise _unreachable_error(named)
    _require_compatible_server(channel, named)
    _forget_session()
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # tells PySpark's functions that the session is one of Spark Connect
    builder = Remote.builder.channelBuilder(channel)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session: Any = builder.getOrCreate()
    except PySparkException as error:
        if "UNAUTHENTICATED" not in str(error) and "authentication token" not in str(error):
            raise
        problem = "refuses the token that was sent" if channel.bearer_token else "requires a token, and none is set"
        raise UsageError(
            f"the Spark Connect server at {named} {problem}.",
            f"export {TOKEN}=…   (or {TOKEN}_FILE): the server's token",
        ) from None
    # the first policy that knows an error handles it
    session.client.set_retry_policies([_RetryPolicy(named), DefaultPolicy()])
    if session.conf.get(code_shipping.CODE, None) == code_shipping.SENT:
        session.addArtifacts(code_shipping.code_archive(), pyfile=True)
    return session  # type: ignore[no-any-return]


def _channel_options() -> list[tuple[str, int]]:
    """Return the gRPC options of a channel."""
    return [
        # with the default a restarted server is found only after twice the time
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.keepalive_time_ms", ALIVE_MS),
        ("grpc.http2.max_pings_without_data", 0),  # no limit
    ]


def _unreachable_error(named: str) -> Unavailable:
    return Unavailable(f"no Spark Connect server answers at {named}.", "altneu connect")


def _forget_session() -> None:
    """Stop a lost session, so that this process does not use it again; a new session may find the server."""
    from pyspark.sql.connect.session import SparkSession as Remote

    # the session of this thread, and that of the process
    for spark in (Remote.getActiveSession(), Remote._get_default_session()):
        policies = spark.client.get_retry_policies() if spark is not None else []
        if spark is not None and any(isinstance(policy, _RetryPolicy) and policy.is_lost for policy in policies):
            spark.stop()


def _require_compatible_server(builder: _SparkChannel, named: str) -> None:
    """Raise `Unavailable` where the server does not use the same protocol. PySpark itself would try for minutes."""
    with contextlib.closing(builder.toChannel()) as channel:
        # the server answers within a millisecond that it has no such method
        hello = channel.unary_unary("/altneu/hello")
        try:
            hello(b"", timeout=SECONDS, wait_for_ready=True)
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
                return
            host, _, port = builder.endpoint.rpartition(":")
            if not is_listening(host, int(port)):  # the server has ended meanwhile
                raise _unreachable_error(named) from None
            if builder.is_encrypted:
                raise Unavailable(
                    f"the server at {named} does not speak TLS, or has a certificate that is not trusted here.",
                    "set GRPC_DEFAULT_SSL_ROOTS_FILE_PATH to the certificates of your authority; /;use_ssl=false at "
                    "the end of the address sends the token unencrypted",
                ) from None
            raise Unavailable(
                f"the server at {named} is not a Spark Connect server, or requires TLS.",
                "add /;use_ssl=true to the address if a proxy speaks TLS for it; to start a server: altneu connect",
            ) from None

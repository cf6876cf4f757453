"""The way of a client to a Spark Connect server: the address, the token, TLS, and what is said when it fails.

An address is `sc://host:port`. A server that listens beyond its own machine asks for a token (`TOKEN`, of the
environment), which is sent in the clear to this machine alone: to any other over TLS, which a proxy in front of the
server has to speak, as Spark itself does not; or in the clear where the address ends in `/;use_ssl=false`. Certificates
of an authority of one's own: `GRPC_DEFAULT_SSL_ROOTS_FILE_PATH`. Source: Spark's client connection string.
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
from ..secret import mask_secrets, read_secret
from . import code_shipping
from .session import is_listening

TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
SECONDS = 10  # for a connection
PATIENCE = 25  # seconds of a server that has answered and does not any more: it may be the network
WAIT_MS = 500  # between two tries
# How often a server that is at work is asked whether it is there: else one whose machine or network is gone, which
# closes no connection, would be waited for forever. Spark's hangs up on who asks more often than every five minutes.
ALIVE_MS = 330_000
AGAIN = "the same command again"
_FORGOTTEN = "INVALID_HANDLE.SESSION_"  # how Spark's errors of a session that the server does not have begin


def is_loopback(host: str) -> bool:
    """Is this address one of this machine alone?

    >>> [is_loopback(each) for each in ("127.0.0.1", "localhost", "[::1]", "0.0.0.0", "spark.example.com")]
    [True, True, True, False, False]
    """
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    return host == "localhost"


class _SparkChannel(DefaultChannelBuilder):
    """Spark's own encrypts to 127.0.0.1 as well, and never sends a token in the clear."""

    @property
    def bearer_token(self) -> str | None:
        given = self.getDefault(self.PARAM_TOKEN, None)
        return given or read_secret(TOKEN)

    @property
    def is_encrypted(self) -> bool:
        """Is the connection encrypted?"""
        said = self.getDefault(self.PARAM_USE_SSL, "").lower()
        return said == "true" or (said != "false" and self.bearer_token is not None and not is_loopback(self.host))

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
    """Sends a token where the connection itself has no credentials."""

    def __init__(self, token: str) -> None:
        self._header = ("authorization", f"Bearer {token}")

    def _send_with_token(self, go_on: Any, details: Any, request: Any) -> Any:
        return go_on(details._replace(metadata=[*(details.metadata or ()), self._header]), request)

    intercept_unary_unary = intercept_unary_stream = intercept_stream_unary = _send_with_token


class _RetryPolicy(RetryPolicy):
    """What becomes of a call where the server does not answer: it is tried again for `PATIENCE` seconds, and raises
    `Unavailable` then; PySpark's own policy is silent for ten minutes. Calls after that one, which clean up, are tried
    once. A server that was started again has no session of before: that is said at once."""

    def __init__(self, named: str) -> None:
        super().__init__(initial_backoff=WAIT_MS)
        self.named, self.lost = named, False

    def can_retry(self, exception: BaseException) -> bool:
        silent = isinstance(exception, grpc.RpcError) and exception.code() == grpc.StatusCode.UNAVAILABLE
        return silent or _FORGOTTEN in str(exception)

    def to_state(self) -> RetryPolicyState:
        return _RetryState(self)


class _RetryState(RetryPolicyState):
    """Of one call."""

    _until: float | None = None

    def __init__(self, policy: _RetryPolicy) -> None:
        super().__init__(policy)
        self._of = policy

    def next_attempt(self, exception: BaseException | None = None) -> int | None:
        there = f"the Spark Connect server at {self._of.named}"
        if _FORGOTTEN in str(exception):
            self._of.lost = True
            raise Unavailable(f"{there} has lost the session: it was started again, or has ended it.", AGAIN)
        now = time.monotonic()
        self._until = self._until or now + PATIENCE
        if self._of.lost or now >= self._until:
            self._of.lost = True
            raise Unavailable(f"{there} does not answer any more.", f"altneu connect, if it has ended; then {AGAIN}")
        return super().next_attempt(exception)


def connect_session(master: str, settings: dict[str, str]) -> SparkSession:
    """The session of this process at a server. Raises `Unavailable` when none answers there, `UsageError` when it
    refuses the token or the address is none."""
    from pyspark.sql.connect.session import SparkSession as Remote

    named = mask_secrets(master)
    try:
        channel = _SparkChannel(master, _channel_options())
        host, _, port = channel.endpoint.rpartition(":")
        reached = int(port) <= 65535
    except (PySparkValueError, ValueError):
        raise UsageError(f"the master {named} is no address of a Spark Connect server.", "sc://host:port") from None
    if not reached or not is_listening(host, int(port)):
        raise _unreachable_error(named)
    _require_compatible_server(channel, named)
    _forget_session()
    os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"  # by this PySpark's functions know which session they are for
    builder = Remote.builder.channelBuilder(channel)
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        session: Any = builder.getOrCreate()
    except PySparkException as error:
        if "UNAUTHENTICATED" not in str(error) and "authentication token" not in str(error):
            raise
        given = "refuses the token that was sent" if channel.bearer_token else "asks for a token, and none is set"
        raise UsageError(
            f"the Spark Connect server at {named} {given}.", f"export {TOKEN}=…   (or {TOKEN}_FILE): that of the server"
        ) from None
    session.client.set_retry_policies([_RetryPolicy(named), DefaultPolicy()])  # of an error, the first that knows it
    if session.conf.get(code_shipping.CODE, None) == code_shipping.SENT:
        session.addArtifacts(code_shipping.code_archive(), pyfile=True)
    return session  # type: ignore[no-any-return]


def _channel_options() -> list[tuple[str, int]]:
    """Return the gRPC options of a channel."""
    return [
        ("grpc.max_reconnect_backoff_ms", 2000),  # else one that is back is found when twice as long has passed
        ("grpc.keepalive_time_ms", ALIVE_MS),
        ("grpc.http2.max_pings_without_data", 0),  # as many as it takes
    ]


def _unreachable_error(named: str) -> Unavailable:
    return Unavailable(f"no Spark Connect server answers at {named}.", "altneu connect")


def _forget_session() -> None:
    """A session that is lost is not the next one of this process: a new one may find the server."""
    from pyspark.sql.connect.session import SparkSession as Remote

    for spark in (Remote.getActiveSession(), Remote._get_default_session()):  # of this thread, of the process
        policies = spark.client.get_retry_policies() if spark is not None else []
        if spark is not None and any(isinstance(policy, _RetryPolicy) and policy.lost for policy in policies):
            spark.stop()


def _require_compatible_server(builder: _SparkChannel, named: str) -> None:
    """Raise `Unavailable` when the server does not speak as we do: PySpark itself would try for minutes."""
    with contextlib.closing(builder.toChannel()) as channel:
        hello = channel.unary_unary("/altneu/hello")  # that it has no such method is an answer, in a millisecond
        try:
            hello(b"", timeout=SECONDS, wait_for_ready=True)
        except grpc.RpcError as error:
            if error.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
                return
            host, _, port = builder.endpoint.rpartition(":")
            if not is_listening(host, int(port)):  # it has ended meanwhile
                raise _unreachable_error(named) from None
            if builder.is_encrypted:
                raise Unavailable(
                    f"what listens at {named} does not speak TLS, or has a certificate that is not trusted here.",
                    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH names the certificates of your authority; /;use_ssl=false at the "
                    "end of the address sends the token in the clear",
                ) from None
            raise Unavailable(
                f"what listens at {named} is no Spark Connect server, or wants TLS.",
                "/;use_ssl=true at the end of the address, if a proxy with TLS is before it; altneu connect",
            ) from None

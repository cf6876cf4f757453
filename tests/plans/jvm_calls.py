"""The calls of this process to the JVM."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from py4j.java_gateway import GatewayClient


def count_calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count from now on the calls to the JVM, without those that release an object."""
    asked, send = Counter[str](), GatewayClient.send_command

    def send_counted(client: Any, command: str, *more: Any, **options: Any) -> Any:
        asked["calls"] += not command.startswith("m\n")
        return send(client, command, *more, **options)

    monkeypatch.setattr(GatewayClient, "send_command", send_counted)
    return asked

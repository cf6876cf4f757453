"""A network of its own for a process of a test, joined to this machine's by one link, which can be cut.

A cut link is what a pulled cable is: nobody is told, connections stay open and hear nothing. A test that asks for a
network has the marker `needs("network")`.
"""

from __future__ import annotations

import os
import subprocess


class Network:
    """`here`, `there`: the addresses of this machine and of what is started by `inside`; `with` takes it away."""

    def __init__(self) -> None:
        number = os.getpid() % 250
        self.name, self._link = f"altneu{number}", f"altneu{number}a"
        self.here, self.there = f"10.213.{number}.1", f"10.213.{number}.2"
        _ip("netns", "add", self.name)
        try:
            _ip("link", "add", self._link, "type", "veth", "peer", "name", f"altneu{number}b", "netns", self.name)
            _ip("addr", "add", f"{self.here}/24", "dev", self._link)
            _ip("-n", self.name, "addr", "add", f"{self.there}/24", "dev", f"altneu{number}b")
            _ip("-n", self.name, "link", "set", "lo", "up")
            _ip("-n", self.name, "link", "set", f"altneu{number}b", "up")
            self.join()
        except BaseException:
            self.close()
            raise

    def inside(self, command: list[str]) -> list[str]:
        """The command that runs another one in this network."""
        return ["ip", "netns", "exec", self.name, *command]

    def cut(self) -> None:
        _ip("link", "set", self._link, "down")

    def join(self) -> None:
        _ip("link", "set", self._link, "up")

    def close(self) -> None:
        # before the network: with it, the link would go some time after this
        subprocess.run(["ip", "link", "del", self._link], check=False, capture_output=True)
        _ip("netns", "del", self.name)

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)

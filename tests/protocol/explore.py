"""Every interleaving of some processes up to a bound, on the real ledger and branches: a stateless search.

A process is a greenlet that stops before each of its steps. An execution follows one order of the processes, each to
its end, but for its deviations: at the given step switch to another process, or the process dies before it (`crash`),
or it is done and the answer does not come (`lost`). `search` tries every execution with up to so many deviations;
without `wide` it deviates only where the next step writes. After every step that writes `ProtocolWorld.check` looks at
the invariants, once where executions begin alike; at the end another process comes, later, and publishes
(`ProtocolWorld.settle`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from greenlet import greenlet

Deviation = tuple[int, str]  # the number of the step; "crash", "lost" or the process to switch to
Deviations = list[list[Deviation]]  # those of several executions


@dataclass
class Point:
    """A step as it was taken, and what could have been done instead."""

    number: int
    process: str
    what: str
    instead: list[str]

    def __str__(self) -> str:
        return f"{self.number:4} {self.process:<10} {self.what}"


class Violation(AssertionError):
    """An invariant does not hold; with the execution that shows it."""


@dataclass
class Process:
    """A process of an execution."""

    name: str
    work: Callable[[], Any]
    hub: greenlet
    next: tuple[str, bool] | None = None  # its next step; None: it has ended
    started: bool = False
    outcome: str = "at work"

    def __post_init__(self) -> None:
        self.greenlet = greenlet(self._work, self.hub)

    def _work(self, _: str) -> None:
        try:
            self.outcome = str(self.work())
        except Exception as error:
            self.outcome = f"{type(error).__name__}: {error}"

    def step(self, what: str, writes: bool) -> str:
        """Called by the process before a step: it stops here, and is told how to go on."""
        return str(self.hub.switch((what, writes)))

    def resume(self, how: str) -> None:
        self.started = True
        self.next = self.greenlet.switch(how)
        if self.greenlet.dead:
            self.next = None


@dataclass
class Execution:
    """One execution: `make` gives a fresh world with the processes' work, by name, in order."""

    world: Any
    deviations: Sequence[Deviation]
    wide: bool
    faults: bool = True
    points: list[Point] = field(default_factory=list)

    def run(self, order: Sequence[str]) -> None:
        try:
            self._run(order)
        except AssertionError as error:
            steps = "\n".join(map(str, self.points))
            found = f"{error}\norder {list(order)}, deviations {list(self.deviations)}\n{steps}"
            raise Violation(found) from error

    def _run(self, order: Sequence[str]) -> None:
        hub = greenlet.getcurrent()
        processes = {name: Process(name, lambda name=name: self.world.work(name), hub) for name in order}
        self.world.start({name: process.step for name, process in processes.items()})
        planned, number, current = dict(self.deviations), 0, processes[order[0]]
        last = max(planned, default=-1)
        dead: list[Process] = []  # kept: a greenlet that is dropped runs its `finally`
        while True:
            if not current.started:
                current.resume("go")
            if current.next is None:
                left = [p for p in processes.values() if p not in dead and (p.next is not None or not p.started)]
                if not left:
                    break
                current = left[0]
                continue
            what, writes = current.next
            others = [p.name for p in processes.values() if p is not current and p not in dead and self._going(p)]
            faults = ["crash", "lost"] if writes else ["crash"] if self.wide else []
            faults = faults if self.faults else []
            switches = others if self.wide or writes else []
            self.points.append(Point(number, current.name, what, [*faults, *switches] if number > last else []))
            todo = planned.get(number, "go")
            number += 1
            if todo in processes:
                current = processes[todo]
                continue
            if todo == "crash":
                current.next, current.outcome = None, "crashed"
                dead.append(current)
                continue
            current.resume(todo)
            if writes and number > last:  # before its last deviation it is an execution that was looked at
                self.world.check()
        self.world.settle(
            {p.name: p.outcome for p in processes.values()},
            faulty=any(deviation in ("crash", "lost") for deviation in planned.values()),
        )

    @staticmethod
    def _going(process: Process) -> bool:
        return not process.started or process.next is not None


def search(
    make: Callable[[], Any],
    orders: Sequence[Sequence[str]],
    bound: int,
    wide: bool = False,
    faults: bool = True,
    first: str = "",
    choose: Callable[[Deviations], Deviations] = list,
) -> Iterator[Execution]:
    """Every execution with up to `bound` deviations, each once, those with fewer first; the first deviation
    only at steps so called. Of those with `bound` deviations in one order of the processes, the ones that `choose`
    returns; the default is all. Raises `Violation`."""
    for order in orders:
        waiting: Deviations = [[]]
        for deviated in range(bound + 1):
            following: Deviations = []
            for deviations in choose(waiting) if deviated == bound else waiting:
                execution = Execution(make(), deviations, wide, faults)
                execution.run(order)
                yield execution
                following += [
                    [*deviations, (point.number, instead)]
                    for point in execution.points
                    for instead in point.instead
                    if deviations or point.what.startswith(first)
                ]
            waiting = following

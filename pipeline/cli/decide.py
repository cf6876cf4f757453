"""What a person decides of a held run: publish, discard."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from ..state.facts import AuditFacts
from .base import command, opened
from .printing import Progress, err, out, print_totals, some

HeldRun = Annotated[str | None, typer.Argument(metavar="[RUN]", help="The held run (default: the only one).")]
By = Annotated[str | None, typer.Option(help="Who decides (default: the user of this machine).")]
Because = Annotated[str | None, typer.Option(help="Why: it is shown on the pages.")]


@command
def publish(run: HeldRun = None, by: By = None, because: Because = None) -> None:
    """Publish a held run: what it has computed and checked, on the revision that it was made from.

    Refused when another run has published meanwhile: then its epochs have to be computed again.
    """
    from ..run import held, runner

    home, ledger = opened(writes=True)
    wanted = held.chosen(ledger, run)
    held.refuse(home, ledger, wanted)
    changed = held.landed_since(home, ledger, wanted)
    held.approve(home, ledger, wanted, by or _user(), because)
    progress = Progress()
    try:
        revision = runner.publish(home, ledger, wanted.run_id, progress)
    finally:
        progress.close()
    mark = f", with a {revision.mark}" if revision.mark else ""
    epochs = len(wanted.epochs) or len(ledger.batches())
    out.print(
        f"published revision {revision.revision}{mark}: {epochs:,} epoch(s), as run {wanted.run_id} has held them"
    )
    if changed:
        err.print(f"[yellow]landed again since they were computed[/], and not published so: {some(changed)}")
        err.print(f"  next: altneu run {' '.join(changed[:8])}", markup=False)
    print_totals(home, ledger)


@command
def discard(run: HeldRun = None, by: By = None, because: Because = None) -> None:
    """Give a held run up: nothing of it is published, and its epochs may be run again. Takes no time and no Spark.

    Its branches of the tables go with the next run or compaction.
    """
    from ..run import held

    home, ledger = opened(writes=True)
    wanted = held.chosen(ledger, run)
    warned = ledger.facts(wanted.run_id, AuditFacts).failed
    held.reject(home, ledger, wanted, by or _user(), because)
    mark = f" ({warned} check(s) had warned)" if warned else ""
    out.print(f"discarded run {wanted.run_id}{mark}; nothing of it was published")
    out.print(f"  next: {held.again(home, wanted).removesuffix(' --hold')}", markup=False)


def _user() -> str | None:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user has no name
        return None

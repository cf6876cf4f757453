"""The settings that have changed the meaning of the published history, and the command that restates it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..home.settings import SETTINGS
from ..state.ledger import Ledger
from ..state.records import RunKind

COMMANDS = {  # kind of restatement → the command, and what it does
    "rebuild": ("altneu rebuild", "every published epoch again, as one revision"),
    "reload": ("altneu rebuild --from-landing", "every epoch again from the landed files, as one revision"),
    "new": ("altneu --home ANOTHER land …", "the epochs or the ids themselves are other ones"),
}
RESTATES = {RunKind.RUN: ("run",), RunKind.REBUILD: ("run", "rebuild"), RunKind.RELOAD: ("run", "rebuild", "reload")}


class SemanticChange(NamedTuple):
    """The semantic settings that have changed, in words, and the kind of restatement that history needs."""

    descriptions: list[str]
    needs: str

    def allows(self, kind: RunKind) -> bool:
        """Tell whether a run of this kind restates what has to be restated."""
        return self.needs in RESTATES[kind]

    @property
    def command(self) -> str:
        """Return the command that restates history, or an empty text where nothing has to be restated."""
        return COMMANDS[self.needs][0] if self.needs in COMMANDS else ""

    @property
    def advice(self) -> str:
        """Return the command with a note of what it does, or an empty text where nothing has to be restated."""
        return "{}   ({})".format(*COMMANDS[self.needs]) if self.needs in COMMANDS else ""


def changed_meaning(ledger: Ledger) -> SemanticChange:
    """Return the settings that have changed the meaning of the published history, and what they need.

    The needs are `run` (nothing has changed, or only value columns were added, which no earlier file can have had),
    `rebuild`, `reload`, or `new` (another home).
    """
    home = ledger.home
    parent = ledger.revisions.get()
    if parent.frontier is None or parent.config_digest == home.config.semantic_digest():
        return SemanticChange([], "run")
    old, new = dict(ledger.runs.get(parent.run_id).config), home.config.semantic_settings()
    words, needs = [], {"run"}
    # A compaction has dropped expired rows, without which the totals of folded epochs cannot be counted again.
    again = "rebuild" if parent.since is None else "reload"
    for setting in SETTINGS:
        name, restates = setting.name, setting.about.restates
        if setting.key and restates and old.get(name) != new[name]:
            words.append(f"[{setting.section}] {name}: {_format_setting(old.get(name))} → {_format_setting(new[name])}")
            needs.add(again if restates == "rebuild" else restates)
    were, are = old.get("motifs") or {}, home.config.motifs
    if list(were.items()) != list(are.items()):
        changed = [name for name in dict.fromkeys([*were, *are]) if were.get(name) != are.get(name)]
        words += [
            f"[motifs] {name}: {_format_setting(were.get(name))} → {_format_setting(are.get(name))}" for name in changed
        ]
        words += [] if changed else ["[motifs]: the order has changed"]
        needs.add(again)
    values = _changed_values(old, new)
    needs |= {"reload"} if values else set()
    return SemanticChange(words + values, next(kind for kind in ("new", "reload", "rebuild", "run") if kind in needs))


def changed_values(ledger: Ledger) -> list[str]:
    """Describe the published value columns that are no longer declared, or are declared with another type."""
    parent = ledger.revisions.get()
    old = {} if parent.frontier is None else ledger.runs.get(parent.run_id).config
    return _changed_values(old, ledger.home.config.semantic_settings())


def _changed_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    before, now = old.get("values") or {}, new["values"]
    return [f"[values] {c}: {before[c]} → {_format_setting(now.get(c))}" for c in before if now.get(c) != before[c]]


def _format_setting(value: Any) -> str:
    return "none" if value is None else str(value)

"""Which settings give history another meaning than what is published, and what restates it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..home.home import Home
from ..home.settings import SETTINGS
from ..state.ledger import Ledger
from ..state.records import RunKind

COMMANDS = {  # what restates history, and what that means
    "rebuild": ("altneu rebuild", "every published epoch again, as one revision"),
    "reload": ("altneu rebuild --from-landing", "every epoch again from the landed files, as one revision"),
    "new": ("altneu --home ANOTHER land …", "the epochs or the ids themselves are other ones"),
}
RESTATES = {RunKind.RUN: ("run",), RunKind.REBUILD: ("run", "rebuild"), RunKind.RELOAD: ("run", "rebuild", "reload")}


class SemanticChange(NamedTuple):
    """What other settings ask of history: which they are, in words, and the kind of run that restates it."""

    words: list[str]
    needs: str

    def allows(self, kind: RunKind) -> bool:
        """Would a run of this kind restate what has to be?"""
        return self.needs in RESTATES[kind]

    @property
    def command(self) -> str:
        """What to type; empty where nothing is to be restated."""
        return COMMANDS[self.needs][0] if self.needs in COMMANDS else ""

    @property
    def advice(self) -> str:
        """Return the difference as a message, with what it means and what to do."""
        return "{}   ({})".format(*COMMANDS[self.needs]) if self.needs in COMMANDS else ""


def changed_meaning(home: Home, ledger: Ledger) -> SemanticChange:
    """The settings that give history another meaning than what is published, and what they need.

    Kinds: `run` (nothing has changed, or only value columns were added, which no earlier file can have held),
    `rebuild`, `reload`, or `new` (another home).
    """
    parent = ledger.get_revision()
    if parent.frontier is None or parent.config_digest == home.config.semantic_digest():
        return SemanticChange([], "run")
    old, new = dict(ledger.get_run(parent.run_id).config), home.config.semantic_settings()
    words, needs = [], {"run"}
    # a compaction has dropped what had expired, and the totals of folded epochs cannot be counted again without it
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
        words += [] if changed else ["[motifs]: in another order"]
        needs.add(again)
    values = _changed_values(old, new)
    needs |= {"reload"} if values else set()
    return SemanticChange(words + values, next(kind for kind in ("new", "reload", "rebuild", "run") if kind in needs))


def changed_values(home: Home, ledger: Ledger) -> list[str]:
    """The published value columns that are declared no longer, or with another type: in words."""
    parent = ledger.get_revision()
    old = {} if parent.frontier is None else ledger.get_run(parent.run_id).config
    return _changed_values(old, home.config.semantic_settings())


def _changed_values(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    before, now = old.get("values") or {}, new["values"]
    return [f"[values] {c}: {before[c]} → {_format_setting(now.get(c))}" for c in before if now.get(c) != before[c]]


def _format_setting(value: Any) -> str:
    return "none" if value is None else str(value)

"""The options of `altneu land`, as the command and the Python call give them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..errors import UsageError
from ..file_names import format_name, is_text

HELP = "altneu land --help"


@dataclass(frozen=True)
class LandOptions:
    """The options of `altneu land`; see its help. None: found in the data."""

    columns: tuple[str, ...] = ()
    separator: str | None = None
    header: bool | None = None
    time_column: str | None = None
    time_format: str | None = None
    time_unit: str | None = None
    every: str | None = None
    epoch: str | int | None = None
    ids: str | None = None
    append: bool = False
    empty: bool = False
    dry_run: bool = False
    comment: str | None = None
    far: bool = False  # epochs 100 years or more from all others and from today are meant so

    def require_text(self) -> None:
        """Raise `UsageError` for an option that no UTF-8 file can hold: it would be declared or compared in vain."""
        for each in fields(self):
            value = getattr(self, each.name)
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str) and not is_text(text):
                    option = {"separator": "sep", "time_column": "time"}.get(each.name, each.name.replace("_", "-"))
                    raise UsageError(f"--{option} {format_name(text)} is no UTF-8 text.", HELP)

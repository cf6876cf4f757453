"""The options of `altneu land`, for the command and for calls from Python."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..errors import UsageError
from ..formatting import format_name, is_text

HELP = "altneu land --help"


@dataclass(frozen=True)
class LandOptions:
    """The options of `altneu land`; its help explains them. None means that the data decides."""

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
    relation: str | None = None  # the files have the rows of this declared relation, not edges
    far: bool = False  # accept epochs that are 100 years or more from all others and from today

    def require_text(self) -> None:
        """Raise `UsageError` for an option that is not UTF-8 text, since no file could contain it."""
        for field in fields(self):
            value = getattr(self, field.name)
            for text in value if isinstance(value, tuple) else (value,):
                if isinstance(text, str) and not is_text(text):
                    option = {"separator": "sep", "time_column": "time"}.get(field.name, field.name.replace("_", "-"))
                    raise UsageError(f"--{option} {format_name(text)} is not UTF-8 text.", HELP)

"""Commands that measure; what they print stands in RESULTS.md."""

import statistics


def spread(values: list[float], digits: int = 1) -> str:
    """The median with the least and the greatest, for a table."""
    middle, least, most = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({least} – {most})"

"""Reports (placeholder while the room is built)."""
from pathlib import Path
from .config import Home
from .ledger import Ledger
def write(home: Home, ledger: Ledger, epochs: list[int]) -> list[Path]:
    return [home.reports / "index.html"]

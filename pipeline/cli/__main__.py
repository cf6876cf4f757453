"""`python -m pipeline.cli` is `altneu`."""

from . import main

main()

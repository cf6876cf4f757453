"""Entry point of `python -m pipeline.cli`, which is the same as `altneu`."""

from . import main

main()

"""Entry point of `python -m altneu.pipeline.cli`, which is the same as `altneu`."""

from . import main

main()

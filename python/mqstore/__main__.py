"""`python -m mqstore`: the command line."""

from __future__ import annotations

from mqstore.cli import main

main()

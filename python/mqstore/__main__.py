"""`python -m mqstore`: the command line."""

from __future__ import annotations

from mqstore.cli import main

if __name__ == "__main__":
    main()

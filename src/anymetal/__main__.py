"""`python -m anymetal` is the command `anymetal`."""

from __future__ import annotations

from anymetal.cli import main

if __name__ == "__main__":
    main()

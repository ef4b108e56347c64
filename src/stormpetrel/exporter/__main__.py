"""`python -m stormpetrel.exporter`."""

from __future__ import annotations

from stormpetrel.exporter.command import main

if __name__ == "__main__":
    raise SystemExit(main())

"""``python -m streamsim``: the command line."""

from __future__ import annotations

import sys

from streamsim.entry import main

if __name__ == "__main__":
    sys.exit(main())

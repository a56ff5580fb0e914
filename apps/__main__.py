"""``python -m apps``, the same as ``trellis``."""

from __future__ import annotations

import sys

from apps.command import main

if __name__ == "__main__":
    sys.exit(main())

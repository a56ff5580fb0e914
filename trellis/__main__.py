"""``python -m trellis``, the same as ``trellis``."""

from __future__ import annotations

import sys

from trellis.apps.command import main

if __name__ == "__main__":
    sys.exit(main())

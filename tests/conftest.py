"""All tests share one cache inside the checkout: the second run starts no compiler."""

from __future__ import annotations

import os
from pathlib import Path

CACHE = Path(__file__).parent.parent / ".anymetal" / "test-cache"

os.environ.setdefault("ANYMETAL_CACHE_DIR", str(CACHE))
os.environ.pop("PYTORCH_MPS_FAST_MATH", None)

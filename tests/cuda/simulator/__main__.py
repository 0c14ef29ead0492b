"""Recorded launches on the simulator: `python -m tests.cuda.simulator FILE...`, as replay.py."""

from __future__ import annotations

import sys

from tests.cuda.replay import main
from tests.cuda.simulator.device import simulated_gpu

if __name__ == "__main__":
    with simulated_gpu():
        main(sys.argv[1:])

"""What runs on a GPU in tests/cuda, on the simulator.

    python -m tests.cuda.simulator launches FILE...           recorded launches, as replay.py
    python -m tests.cuda.simulator random --seed N --count N  the fuzzer's kernels
    python -m tests.cuda.simulator published                  a package's kernels, judged by float64
    python -m tests.cuda.simulator mlx --shard I/N --sample N MLX's kernels beside Apple's code

With `--capability 80` in front, as older GPUs have them.
"""

from __future__ import annotations

import argparse
import sys

from tests.cuda.random_kernels import compare_all
from tests.cuda.replay import main as replay
from tests.cuda.simulator import mlx, published
from tests.cuda.simulator.device import simulated_gpu


def main() -> int:
    """How much differs that should not."""
    parser = argparse.ArgumentParser(description=__doc__)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("launches").add_argument("files", nargs="+")
    verbs.add_parser("published")
    parser.add_argument("--capability", type=int, default=90, help="80, 90")
    random = verbs.add_parser("random")
    random.add_argument("--seed", type=int, default=9_100_000)
    random.add_argument("--count", type=int, default=300)
    kernels = verbs.add_parser("mlx")
    kernels.add_argument("--shard", default="1/1")
    kernels.add_argument("--sample", type=int, default=300)
    options = parser.parse_args()
    if options.verb == "mlx":
        return mlx.main(options.shard, options.sample)
    with simulated_gpu(divmod(options.capability, 10)):
        if options.verb == "launches":
            return replay(options.files)
        if options.verb == "published":
            return published.main()
        return compare_all(range(options.seed, options.seed + options.count))


if __name__ == "__main__":
    sys.exit(main() > 0)

"""What a kernel of one's own is tested and timed with: `compare` and `do_bench`."""

from anymetal.evidence.judge import Tolerance
from anymetal.testing.bench import Timing, do_bench
from anymetal.testing.compare import compare
from anymetal.testing.comparison import Comparison, ComparisonError

__all__ = ["Comparison", "ComparisonError", "Timing", "Tolerance", "compare", "do_bench"]

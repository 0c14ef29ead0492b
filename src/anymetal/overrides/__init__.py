"""torch's own functions, with our kernels behind them: for programs that are not to be changed.

```python
import torch
from anymetal import overrides

model, x = torch.nn.LayerNorm(32), torch.randn(4, 32)
overrides.enable()  # what was measured to be faster here
with overrides.enabled("norm", "softmax"):
    model(x)
print(overrides.report())
overrides.disable()  # torch is as it was
```

Whatever ours does not take in full goes to torch: see docs/overrides.md.
"""

from anymetal.overrides.counts import COUNTS, Calls
from anymetal.overrides.report import Report, report
from anymetal.overrides.switch import active, disable, enable, enabled
from anymetal.overrides.table import GROUPS

reset = COUNTS.reset

__all__ = [
    "GROUPS",
    "Calls",
    "Report",
    "active",
    "disable",
    "enable",
    "enabled",
    "report",
    "reset",
]

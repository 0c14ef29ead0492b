"""Optimizers as torch.optim has them, with Metal kernels that take many tensors a launch.

```python
import anymetal
import torch

model = torch.nn.Linear(3, 2)
optimizer = anymetal.optim.AdamW(model.parameters(), lr=3e-4)
```

They are torch's own classes with another `step`: options, state_dict, schedulers, parameter groups,
closures and gradient scalers are torch's. `Lion` has no model there.
"""

from anymetal.optim.adam import Adam, AdamW
from anymetal.optim.clip import clip_grad_norm_
from anymetal.optim.lion import Lion
from anymetal.optim.muon import Muon
from anymetal.optim.sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "Lion", "Muon", "clip_grad_norm_"]

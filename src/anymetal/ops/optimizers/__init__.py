"""Steps of optimizers over lists of tensors, and the clipping of gradients by their norm."""

from anymetal.ops.optimizers.adam import adam_step_
from anymetal.ops.optimizers.clip import clip_gradients_
from anymetal.ops.optimizers.lion import lion_step_
from anymetal.ops.optimizers.muon import muon_momentum_, muon_step_
from anymetal.ops.optimizers.sgd import sgd_step_

__all__ = [
    "adam_step_",
    "clip_gradients_",
    "lion_step_",
    "muon_momentum_",
    "muon_step_",
    "sgd_step_",
]

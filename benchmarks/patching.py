"""Time for each token and each training step of models, with patch.transformers and without.

    python benchmarks/patching.py [--rounds 5] [--device mps]

The two are timed in turns in one process, in CPU seconds of one thread; the table has the least of
each and the ratio. A ratio below 1 is time that the patch saves. "linear loss" is the loss that is
computed without the logits, whatever their size.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers

import anymetal.device
from anymetal import patch
from anymetal.evidence.machine import describe

WIDTH, LAYERS, VOCABULARY = 256, 2, 4096
_TEXT = {
    "vocab_size": VOCABULARY, "hidden_size": WIDTH, "intermediate_size": 4 * WIDTH,
    "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2,
    "head_dim": 64, "eos_token_id": None, "pad_token_id": 0,
}  # fmt: skip
MODELS = {
    "Llama": ("LlamaForCausalLM", "LlamaConfig", _TEXT),
    "Qwen3": ("Qwen3ForCausalLM", "Qwen3Config", _TEXT),
    "Gemma 2": ("Gemma2ForCausalLM", "Gemma2Config", {**_TEXT, "query_pre_attn_scalar": 64}),
    "GPT-2": (
        "GPT2LMHeadModel", "GPT2Config",
        {"vocab_size": VOCABULARY, "n_embd": WIDTH, "n_layer": LAYERS, "n_head": 4,
         "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "eos_token_id": None,
         "pad_token_id": 0},
    ),
}  # fmt: skip


def build(name: str, device: str) -> transformers.PreTrainedModel:
    model, config, options = MODELS[name]
    torch.manual_seed(0)
    made = getattr(transformers, model)(getattr(transformers, config)(**options))
    return made.to(device)  # type: ignore[no-any-return]


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


LINEAR_LOSS = "linear loss"


def measure(name: str, rounds: int, device: str, group: str | None = None) -> list[str]:
    """A row of the table: the whole patch, or one group of it alone."""
    model = build(name, device)
    alone = "loss" if group == LINEAR_LOSS else group
    options: dict[str, Any] = {"skip": [one for one in patch.GROUPS if alone not in (None, one)]}
    if group == LINEAR_LOSS:
        options["linear_loss_from"] = 0
    ids = torch.randint(1, VOCABULARY, (2, 128)).to(device)
    tokens = 16

    def step() -> None:
        model.train()
        model.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()

    def write() -> None:
        model.eval()
        model.generate(ids[:1, :64], max_new_tokens=tokens, do_sample=False)

    found: dict[tuple[str, bool], list[float]] = {}
    for turn in range(rounds + 1):
        for patched in (False, True):
            handle = patch.transformers(model, **options) if patched else None
            for kind, call in (("step", step), ("token", write)):
                spent = seconds(call)
                if turn:  # the first compiles
                    found.setdefault((kind, patched), []).append(spent)
            if handle is not None:
                handle.undo()
    cells = []
    for kind, per in (("step", 1), ("token", tokens)):
        plain, ours = (1e3 * min(found[kind, p]) / per for p in (False, True))
        cells += [f"{plain:.1f}", f"{ours:.1f}", f"{ours / plain:.2f}"]
    return [name if group is None else f"{name}, {group}", *cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--device", default="mps", choices=("mps", "cpu"))
    options = parser.parse_args()
    if options.device == "mps" and not torch.backends.mps.is_available():
        anymetal.device.enable(missing="run")
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)  # threads that wait for others spend time, more so on a busy machine
    print(describe(torch.device(options.device)))
    print(f"transformers {transformers.__version__}, float32, {options.device}")
    print("\n| model | step | patched | ratio | token | patched | ratio |\n|---|" + "---:|" * 6)
    groups = (*patch.GROUPS, LINEAR_LOSS)
    rows = [*((name, None) for name in MODELS), *(("Llama", group) for group in groups)]
    for name, group in rows:
        row = measure(name, options.rounds, options.device, group)
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()

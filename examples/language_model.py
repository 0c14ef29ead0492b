"""Train a small language model of transformers and let it write, with and without our operators.

    anymetal run examples/language_model.py               as it is
    anymetal run examples/language_model.py --patch       with one line more

`anymetal run` gives the script a virtual mps device; on a Mac, `python` is enough. The model learns
the text of this file, character by character.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from anymetal import patch

ALPHABET = sorted(set(Path(__file__).read_text()))


def batches(steps: int, size: int, length: int) -> list[torch.Tensor]:
    """Pieces of the text as numbers of characters."""
    text = Path(__file__).read_text()
    numbers = torch.tensor([ALPHABET.index(character) for character in text])
    draw = torch.Generator().manual_seed(0)
    starts = torch.randint(len(numbers) - length, (steps, size), generator=draw)
    return [torch.stack([numbers[s : s + length] for s in row]) for row in starts.tolist()]


def main(arguments: list[str] | None = None) -> tuple[list[float], str]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--patch", action="store_true", help="with anymetal's operators")
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--length", type=int, default=64, help="characters in a piece of text")
    parser.add_argument("--tokens", type=int, default=60)
    parser.add_argument("--device", default="mps")
    options = parser.parse_args(arguments)

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(ALPHABET), hidden_size=64, intermediate_size=96, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, head_dim=16, eos_token_id=None,
        pad_token_id=0,
    )  # fmt: skip
    model = LlamaForCausalLM(config).to(options.device)

    if options.patch:
        print(patch.transformers(model).report())  # the one line

    losses = train(model, batches(options.steps, 8, options.length))
    print(f"loss {losses[0]:.4f} -> {losses[-1]:.4f}")
    text = write(model, "def ", options.tokens)
    print(text)
    return losses, text


def train(model: LlamaForCausalLM, pieces: list[torch.Tensor]) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model.train()
    losses, times = [], []
    for piece in pieces:
        start = time.perf_counter()
        ids = piece.to(model.device)
        loss = model(input_ids=ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        times.append(time.perf_counter() - start)
    # The median: the first step compiles kernels, where they are not on disk yet.
    print(f"{1e3 * statistics.median(times):.1f} ms a step")
    return losses


def write(model: LlamaForCausalLM, beginning: str, tokens: int) -> str:
    model.eval()
    prompt = torch.tensor([[ALPHABET.index(character) for character in beginning]])
    for tokens_now in (2, tokens):  # the first time compiles
        start = time.perf_counter()
        found = model.generate(prompt.to(model.device), max_new_tokens=tokens_now, do_sample=False)
    print(f"{1e3 * (time.perf_counter() - start) / tokens:.1f} ms a token")
    return "".join(ALPHABET[number] for number in found[0].tolist())


if __name__ == "__main__":
    main()

"""torch's own operator samples on the virtual mps device, against the CPU: forward and gradient.

    python -m conformance.op_db [--samples N] [--every N] [--only REGEX] [--json FILE]

Each sample of `op_db` runs on the CPU and on mps, from copies of the same memory with the same
seed, and the results must agree. The exit status is 1 when one fails that is not explained below.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import SampleInput
from torch.utils._pytree import tree_flatten, tree_map

import anymetal.device
from anymetal.evidence.judge import relative_error

DTYPES = (torch.float32, torch.float16)
LEGS = ("forward", "gradient")

# What makes a comparison meaningless, by the name of the operator.
NOT_COMPARED = {
    "empty": "its result is not defined",
    "empty_like": "its result is not defined",
    "empty_permuted": "its result is not defined",
    "empty_strided": "its result is not defined",
    "new_empty": "its result is not defined",
    "new_empty_strided": "its result is not defined",
    "resize_": "its result is not defined where it grows",
    "resize_as_": "its result is not defined where it grows",
}

# Operators whose further arguments must be on the CPU, wherever the first is; on a Mac too.
HOST_ARGUMENTS = ("tensor_split",)

# Where torch computes in another way off the CPU. The results then need not agree; both must be as
# close to float64, within this factor.
OTHER_WAYS = {
    "nn.functional.linear_cross_entropy": "torch adds chunks in float32 on the CPU only",
    "nn.functional.scaled_dot_product_attention": "a fused kernel on the CPU only",
}
ERROR_FACTOR = 8.0

SPARSE = ("sparse", "layout torch.", "dense tensors only")
NO_FLOAT64 = "doesn't support float64"


@dataclass(frozen=True)
class Outcome:
    """What became of one sample on one leg."""

    operator: str
    dtype: str
    leg: str
    sample: int
    verdict: str
    reason: str = ""


class Skip(Exception):
    """This sample says nothing about the device, and why."""


class Explained(Exception):
    """The results differ for a reason that is known, and are as exact as the CPU's."""


def copied(tensor: torch.Tensor, device: str) -> torch.Tensor:
    """The same tensor on a device, over a copy of its whole memory: overlaps and gaps stay."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise Skip("sparse or quantized tensors")
    if not tensor.numel() and not tensor.untyped_storage().nbytes():
        copy = tensor.detach().to(device)
    else:
        bare = tensor.detach()
        flags = (bare.is_conj(), bare.is_neg())
        bare = bare.conj() if flags[0] else bare
        whole = torch.empty(0, dtype=tensor.dtype).set_(bare.untyped_storage())
        moved = whole.clone().to(device)
        copy = moved.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
        copy = copy.conj() if flags[0] else copy
        copy = torch._neg_view(copy) if flags[1] else copy
    return copy.requires_grad_(tensor.requires_grad)


def on(device: str, value: Any) -> Any:
    """An argument of a sample, moved to a device."""
    if isinstance(value, torch.Tensor):
        return copied(value, device)
    if isinstance(value, torch.device) or value == "cpu":
        return torch.device(device)
    return value


def run(operator: Any, sample: Any, device: str) -> tuple[Any, list[torch.Tensor]]:
    """The results of a sample on a device, and the tensors it could be differentiated by."""
    first = tree_map(lambda value: on(device, value), sample.input)
    others = "cpu" if operator.name in HOST_ARGUMENTS else device
    rest, kwargs = tree_map(lambda value: on(others, value), (sample.args, sample.kwargs))
    args = (first, *rest)
    torch.manual_seed(0)
    result = operator(*args, **kwargs)
    result = sample.output_process_fn_grad(result)
    leaves = [
        leaf
        for leaf in tree_flatten((args, kwargs))[0]
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad
    ]
    return result, leaves


def gradients(result: Any, leaves: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Gradients of the sum of all results."""
    outputs = [
        out for out in tree_flatten(result)[0] if isinstance(out, torch.Tensor) and out.grad_fn
    ]
    if not outputs or not leaves:
        raise Skip("nothing to differentiate")
    ones = [torch.ones_like(out) for out in outputs]
    return list(torch.autograd.grad(outputs, leaves, ones, allow_unused=True))


def compare(actual: Any, expected: Any) -> None:
    """Raise unless two results agree; the device's must be on the device."""
    ours, theirs = tree_flatten(actual)[0], tree_flatten(expected)[0]
    if len(ours) != len(theirs):
        raise AssertionError(f"{len(ours)} results instead of {len(theirs)}")
    for mine, other in zip(ours, theirs, strict=True):
        if isinstance(other, torch.Tensor) and other.device.type == "cpu":
            if not isinstance(mine, torch.Tensor) or mine.dtype != other.dtype:
                raise AssertionError(f"{type(mine).__name__} instead of {other.dtype}")
            mine = mine.detach().cpu()  # noqa: PLW2901
            torch.testing.assert_close(mine, other.detach(), equal_nan=True, check_stride=False)
        elif isinstance(other, (int, float, bool, complex)):
            torch.testing.assert_close(mine, other, equal_nan=True)


def check(operator: Any, sample: Any, leg: str) -> None:
    """Run one leg of one sample on both devices."""
    try:
        expected = results(operator, sample, leg, "cpu")
    except Skip:
        raise
    except Exception as error:
        raise Skip("the CPU raises as well") from error
    actual = results(operator, sample, leg, "mps")
    try:
        compare(actual, expected)
    except AssertionError:
        if operator.name not in OTHER_WAYS:
            raise
        exact = results(operator, in_float64(sample), leg, "cpu")
        if distance(actual, exact) > ERROR_FACTOR * distance(expected, exact):
            raise
        raise Explained(OTHER_WAYS[operator.name]) from None


def results(operator: Any, sample: Any, leg: str, device: str) -> Any:
    result, leaves = run(operator, sample, device)
    return gradients(result, leaves) if leg == "gradient" else result


def in_float64(sample: Any) -> Any:
    def convert(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return value.detach().double().requires_grad_(value.requires_grad)

    parts = tree_map(convert, (sample.input, sample.args, sample.kwargs))
    return SampleInput(  # type: ignore[no-untyped-call]
        parts[0], args=parts[1], kwargs=parts[2]
    )


def distance(result: Any, exact: Any) -> float:
    """The largest error of all results."""
    pairs = zip(tree_flatten(result)[0], tree_flatten(exact)[0], strict=True)
    return max(relative_error(a, b) for a, b in pairs if isinstance(b, torch.Tensor))


def samples_of(operator: Any, dtype: torch.dtype, leg: str, count: int) -> Iterator[Any]:
    wanted = leg == "gradient"
    if dtype not in operator.supported_dtypes("cpu"):
        raise Skip(f"no {dtype} on the CPU")
    if wanted and (
        not operator.supports_autograd or dtype not in operator.supported_backward_dtypes("cpu")
    ):
        raise Skip(f"no gradient for {dtype}")
    torch.manual_seed(0)
    samples = operator.sample_inputs("cpu", dtype, requires_grad=wanted)
    for _, sample in zip(range(count), samples, strict=False):
        yield sample


def judge(
    operator: Any, dtype: torch.dtype, leg: str, number: int, act: Callable[[], None]
) -> Outcome:
    """The verdict of one comparison, with the reason for a skip or a failure."""
    name = operator.name + (f".{operator.variant_test_name}" if operator.variant_test_name else "")
    place = (name, str(dtype).removeprefix("torch."), leg, number)
    try:
        act()
    except Skip as skip:
        return Outcome(*place, "skipped", str(skip))
    except Explained as explanation:
        return Outcome(*place, "explained", str(explanation))
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        if NO_FLOAT64 in text:
            return Outcome(*place, "skipped", "float64, which MPS refuses")
        if any(word in text.lower() for word in SPARSE):
            return Outcome(*place, "skipped", "sparse tensors, which the device does not have")
        return Outcome(*place, "failed", text)
    return Outcome(*place, "passed")


def outcomes(operator: Any, count: int) -> Iterator[Outcome]:
    """All legs and dtypes of one operator."""
    for dtype in DTYPES:
        for leg in LEGS:
            try:
                if operator.name in NOT_COMPARED:
                    raise Skip(NOT_COMPARED[operator.name])
                samples = list(samples_of(operator, dtype, leg, count))
            except Skip as skip:
                yield judge(operator, dtype, leg, 0, partial(refuse, skip))
                continue
            for number, sample in enumerate(samples):
                yield judge(operator, dtype, leg, number, partial(check, operator, sample, leg))


def refuse(skip: Skip) -> None:
    raise skip


def survey(count: int, every: int = 1, only: str = "") -> list[Outcome]:
    """Every `every`-th operator whose name matches `only`."""
    operators = [operator for operator in op_db if re.search(only, operator.name)][::every]
    found: list[Outcome] = []
    for number, operator in enumerate(operators):
        if sys.stderr.isatty():
            print(f"\r{number + 1}/{len(operators)} {operator.name:40}", end="", file=sys.stderr)
        found += outcomes(operator, count)
    return found


def show(found: list[Outcome]) -> None:
    verdicts = ("passed", "skipped", "explained", "failed")
    print(f"{'':22}" + "".join(f"{verdict:>11}" for verdict in verdicts))
    for leg in LEGS:
        for dtype in ("float32", "float16"):
            rows = [o for o in found if (o.leg, o.dtype) == (leg, dtype)]
            counts = Counter(o.verdict for o in rows)
            print(f"{leg + ' ' + dtype:22}" + "".join(f"{counts[v]:11}" for v in verdicts))
    print("\nskipped:")
    for reason, count in Counter(o.reason for o in found if o.verdict == "skipped").most_common():
        print(f"{count:6}  {reason}")
    print("\nexplained: the results differ, and are as close to float64 as the CPU's:")
    explained = Counter((o.operator, o.reason) for o in found if o.verdict == "explained")
    for (operator, reason), count in explained.items():
        print(f"{count:6}  {operator}: {reason}")
    for o in found:
        if o.verdict == "failed":
            print(f"failed: {o.operator} {o.dtype} {o.leg} sample {o.sample}: {o.reason}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=3, help="of each operator, dtype and leg")
    parser.add_argument("--every", type=int, default=1, help="only every N-th operator")
    parser.add_argument("--only", default="", metavar="REGEX", help="only operators named so")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    anymetal.device.enable(missing="run")
    warnings.simplefilter("ignore")
    found = survey(options.samples, options.every, options.only)
    show(found)
    if options.json:
        options.json.write_text(json.dumps([vars(o) for o in found], indent=1) + "\n")
    return 1 if any(o.verdict == "failed" for o in found) else 0


if __name__ == "__main__":
    sys.exit(main())

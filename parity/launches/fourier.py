"""Fourier transforms: in one piece, by Rader's and Bluestein's ways, in four steps."""

from __future__ import annotations

from anymetal.nouns import Scalar
from parity.launches.launch import Case, Launch, Value, launches

_RADICES = (13, 11, 8, 7, 6, 5, 4, 3, 2)
_RADER = 17  # a prime that no radix divides; 16 is a product of radices
_ROOT = 3  # its powers are all numbers below 17


def _steps(size: int) -> dict[int, int]:
    """How often each radix divides a size; large ones first."""
    found = dict.fromkeys(_RADICES, 0)
    for radix in _RADICES:
        while size % radix == 0:
            found[radix] += 1
            size //= radix
    assert size == 1
    return found


def _constants(size: int, each: int, *, inverse: bool, rader: bool = False) -> dict[str, Scalar]:
    own = _steps(size // _RADER) if rader else _steps(size)
    others = _steps(_RADER - 1) if rader else dict.fromkeys(_RADICES, 0)
    return {
        "inv_": inverse,
        "is_power_of_2_": size & (size - 1) == 0,
        "elems_per_thread_": each,
        "rader_m_": size // _RADER if rader else 1,
        **{f"radix_{radix}_steps_": count for radix, count in own.items()},
        **{f"rader_{radix}_steps_": count for radix, count in others.items()},
        "use_bluestein_twiddle_table_": False,
    }


def _launch(
    case: Case, size: int, each: int, values: dict[str, Value], *, rader: bool = False
) -> Launch:
    """Two threadgroups of as many transforms as their memory holds; the last has one less."""
    together = max(case.number(0) // size, 1)
    group = (1, together, -(-size // each))
    values = {"n": size, "batch_size": max(2 * together - 1, 2), **values}
    constants = _constants(size, each, inverse=case.chance("inverse"), rader=rader)
    elements = 4 * case.number(0) + 64
    threads = (2, *group[1:])
    return Launch(values, threads, group, elements=elements, constants=constants)


@launches("fft")
def _whole(case: Case) -> list[Launch]:
    """A power of two, or a product of other radices."""
    memory = case.number(0)
    if case.chance("power"):
        return [_launch(case, memory // 2, 8 if memory >= 1024 else 4, {})]
    return [_launch(case, {256: 240, 512: 504}.get(memory, 990), 6, {})]


@launches("rader_fft")
def _rader(case: Case) -> list[Launch]:
    powers = [pow(_ROOT, power, _RADER) for power in range(_RADER - 1)]
    inverse = [pow(_ROOT, -power, _RADER) for power in range(_RADER - 1)]
    values: dict[str, Value] = {
        "rader_n": _RADER,
        "raders_g_q": powers,
        "raders_g_minus_q": inverse,
    }
    return [_launch(case, _RADER * 6, 6, values, rader=True)]


@launches("bluestein_fft")
def _bluestein(case: Case) -> list[Launch]:
    memory = case.number(0)
    each = 8 if memory >= 512 else 4
    return [_launch(case, memory, each, {"length": memory // 2 - 3})]


@launches("four_step_fft")
def _four_steps(case: Case) -> list[Launch]:
    """Columns of 64 numbers, then rows of as many as the memory takes.

    All 64 transforms have their threads: the last threadgroup takes it that those before it have
    done the rest, and counts its numbers with 16 bits.
    """
    memory, step = case.number(0), case.number(3)
    first, second = (memory // 4, 64) if step == 0 else (64, memory // 4)
    size = first if step == 0 else second
    each = 8 if size >= 512 else 4
    launch = _launch(case, size, each, {"n1": first, "n2": second})
    together, count = 4, 64
    values = {**launch.values, "batch_size": count}
    group = (1, together, size // each)
    threads = (count // together, *group[1:])
    elements = 2 * first * second + 64
    changed = {"values": values, "threads": threads, "group": group, "elements": elements}
    return [Launch(**{**vars(launch), **changed})]

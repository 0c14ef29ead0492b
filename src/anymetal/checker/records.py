"""The structures of checker/shadow in ctypes: what Python fills before a launch and reads after
it."""

from __future__ import annotations

import ctypes

BUFFERS, DYNAMIC, MAX_STATIC = 31, 31, 256
FIRST_DYNAMIC, FIRST_STATIC = BUFFERS, BUFFERS + DYNAMIC
REGIONS = FIRST_STATIC + MAX_STATIC
UNKNOWN_REGION = REGIONS
DEVICE, THREADGROUP = 0, 1
READ, WRITE, ATOMIC, MODIFY = 0, 1, 2, 4
NO_SITE, NO_THREAD = 0xFFFF, 0xFFFFFFFF
CELL_BYTES = 16
MAX_FINDINGS = 1024
SIMDGROUPS = 32
THREADS = 1024

_unsigned, _long = ctypes.c_uint, ctypes.c_ulong


class Region(ctypes.Structure):
    """am_region."""

    _fields_ = (
        ("low", _long),
        ("extent", _long),
        ("size", _long),
        ("shadow", _long),
        ("shift", _unsigned),
        ("memory", _unsigned),
        ("read_only", _unsigned),
        ("fresh", _unsigned),
        ("cells", _long * 4),
    )


class Checks(ctypes.Structure):
    """am_checks."""

    _fields_ = (
        ("epoch", _unsigned),
        ("first", _unsigned * 2),
        ("group_first", _unsigned),
        ("ordered", _unsigned * 2),
        ("executed", _unsigned),
        ("region_count", _unsigned),
        ("static_count", _unsigned),
        ("static_offset", _unsigned * MAX_STATIC),
        ("regions", Region * (REGIONS + 1)),
    )


class RawFinding(ctypes.Structure):
    """am_finding."""

    _fields_ = (
        ("kind", _unsigned),
        ("severity", _unsigned),
        ("site", _unsigned),
        ("other_site", _unsigned),
        ("region", _unsigned),
        ("access", _unsigned),
        ("other_access", _unsigned),
        ("thread", _unsigned),
        ("other_thread", _unsigned),
        ("extra", _unsigned),
        ("group", _long),
        ("other_group", _long),
        ("offset", ctypes.c_long),
        ("size", _long),
        ("count", _long),
    )


class Findings(ctypes.Structure):
    """am_findings."""

    _fields_ = (("count", _long), ("dropped", _long), ("entries", RawFinding * MAX_FINDINGS))


class AccessSiteRow(ctypes.Structure):
    """am_access_site."""

    _fields_ = (("element", _unsigned), ("align", _unsigned), ("use", _unsigned))


class Range(ctypes.Structure):
    """am_range."""

    _fields_ = (("low", _long), ("high", _long))


class CheckedLaunch(ctypes.Structure):
    """am_checked_launch."""

    _fields_ = (
        ("checks", Checks),
        ("simd_ordered", (_unsigned * SIMDGROUPS) * 2),
        ("simd_executed", _unsigned * SIMDGROUPS),
        ("suspends", ctypes.POINTER(_unsigned)),
        ("sites", ctypes.POINTER(AccessSiteRow)),
        ("group_starts", ctypes.POINTER(_unsigned)),
        ("group", _long),
        ("sink", _long),
        ("own", Range * 2),
        ("first_number", _unsigned),
        ("doubt", _unsigned * THREADS),
        ("pending", RawFinding),
        ("pending_address", _long),
        ("pending_size", _unsigned),
        ("pending_value", ctypes.c_char * 64),
        ("findings", Findings),
    )

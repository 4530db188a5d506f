"""The file that the fake library maps: its lists and structs, as nvml_state.h has them."""

import ctypes
import re

from tests.fakes.nvml_build import HERE

STATE = (HERE / "nvml_state.h").read_text(encoding="ascii")
NOT_THERE = -(1 << 63)  # NA in nvml_state.h
SYSTEM = 32


def listed(name: str) -> list[str]:
    """Return the names of one list of nvml_state.h, in order."""
    found = re.search(rf"#define {name}\(\w\)(.*?[^\\])\n\n", STATE.replace("/* clang-format on */", "\n"), re.DOTALL)
    assert found is not None, f"nvml_state.h has no list {name}"
    return re.findall(r"\b\w\((\w+)\)", found[1])


VALUES, TEXTS, GLOBALS, FUNCTIONS = listed("VALUES"), listed("TEXTS"), listed("GLOBALS"), listed("FUNCTIONS")
CARDS, FIELDS, TEXT, PROCESSES, MIG_DEVICES, EVENTS, NVLINKS, PLACES, GPM = (
    int(re.findall(rf"#define {name} (\d+)", STATE)[0])
    for name in ("CARDS", "FIELDS", "TEXT", "PROCESSES", "MIG_DEVICES", "EVENTS", "NVLINKS", "PLACES", "GPM")
)


class Rule(ctypes.Structure):
    """struct rule."""

    _fields_ = [
        (name, ctypes.c_int64) for name in ("code", "fail_in", "fail_code", "fail_more", "hang", "crash", "delay_ns", "calls")
    ]


class Mig(ctypes.Structure):
    """struct mig."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in ("present", "gpu_instance", "compute_instance", "total", "used")),
        ("uuid", ctypes.c_char * TEXT),
        ("name", ctypes.c_char * TEXT),
        ("gpm", ctypes.c_int64 * GPM),
    ]


class Link(ctypes.Structure):
    """struct link."""

    _fields_ = [
        (name, ctypes.c_int64)
        for name in ("state", "transmit", "receive", "replay", "recovery", "crc", "symbol", "recovery_failed")
    ]


class Event(ctypes.Structure):
    """struct event."""

    _fields_ = [(name, ctypes.c_int64) for name in ("card", "type", "data", "gpu_instance", "compute_instance", "times")]


class Card(ctypes.Structure):
    """struct card."""

    _fields_ = [
        ("values", ctypes.c_int64 * len(VALUES)),
        ("field_codes", ctypes.c_int64 * FIELDS),
        ("pids", ctypes.c_int64 * PROCESSES),
        ("process_memory", ctypes.c_int64 * PROCESSES),
        ("process_kinds", ctypes.c_int64 * PROCESSES),
        ("process_gi", ctypes.c_int64 * PROCESSES),
        ("process_ci", ctypes.c_int64 * PROCESSES),
        ("process_share", ctypes.c_int64 * PROCESSES),
        ("process_sampled", ctypes.c_int64 * PROCESSES),
        ("process_stride", ctypes.c_int64),
        ("lost", ctypes.c_int64),
        ("dead_uses", ctypes.c_int64),
        ("attaches", ctypes.c_int64),
        ("hang", ctypes.c_int64),
        ("texts", (ctypes.c_char * TEXT) * len(TEXTS)),
        ("mig", Mig * MIG_DEVICES),
        ("links", Link * NVLINKS),
        ("memory_errors", ctypes.c_int64 * (4 * PLACES)),
        ("gpm", ctypes.c_int64 * GPM),
        ("gpm_codes", ctypes.c_int64 * GPM),
    ]


class State(ctypes.Structure):
    """struct state."""

    _fields_ = [
        *((name, ctypes.c_int64) for name in GLOBALS),
        ("order", ctypes.c_int64 * CARDS),
        ("driver_version", ctypes.c_char * TEXT),
        ("nvml_version", ctypes.c_char * TEXT),
        ("rules", (Rule * (CARDS + 1)) * len(FUNCTIONS)),
        ("cards", Card * CARDS),
        ("events", Event * EVENTS),
    ]

"""An alert's fingerprint: the one that Prometheus and Alertmanager compute, so that both worlds name it alike."""

from collections.abc import Mapping

OFFSET, PRIME, MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1


def fingerprint(labels: Mapping[str, str]) -> str:
    """Return 64-bit FNV-1a over the sorted labels as 16 hexadecimal digits (notify.md section 2 has the test vectors)."""
    value = OFFSET
    for name in sorted(labels):
        for part in (name, labels[name]):
            for byte in (*part.encode("utf-8", "replace"), 0xFF):
                value = ((value ^ byte) * PRIME) & MASK
    return f"{value:016x}"

"""When the PCIe byte counters of a GPU can be trusted: they have been seen to wrap at 32 bits, 0.17 s at 25 GB/s."""

# Bytes per second and lane, after line coding (PCIe base specification): 8b/10b up to generation 2, 128b/130b up to 5.
LANE = {1: 0.25e9, 2: 0.5e9, 3: 0.985e9, 4: 1.969e9, 5: 3.938e9, 6: 7.563e9}
SAMPLE_AGE = 15.0  # seconds after which a 20 ms sample says nothing about now
WRAP = 1 << 32  # NVIDIA/dcgm-exporter#721; the header only warns that they wrap


def trusted(generation: float | None, lanes: float | None, gap: float, *, wide: bool) -> bool:
    """Return whether the byte counters lose nothing between two reads that are at most `gap` seconds apart.

    Either the device has shown more than 32 bits, or its link cannot carry 2^32 bytes in that time.
    """
    if wide:
        return True
    if not generation or not lanes:
        return False
    rate = LANE.get(int(generation))
    return rate is not None and rate * lanes * gap < WRAP

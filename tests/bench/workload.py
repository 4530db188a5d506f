"""Eight busy GPUs on a fake NVML: values like those of an A40 in training, which change a little each beat."""

import random
import threading

from tests.fakes.nvml import FakeNvml

GPUS = 8
CALL = 0.0003  # seconds of a call
EVERY = 0.5  # seconds between two changes: faster than any beat, so that nothing is equal twice
GIB = 1 << 30


class Busy:
    """Changes the values of some fake NVMLs until it is stopped."""

    def __init__(self, *fakes: FakeNvml) -> None:
        self._fakes = fakes
        self._round = 0
        self._dice = random.Random(20)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        for fake in fakes:
            fake.delay(CALL)
        self.turn()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stop.wait(EVERY):
            self.turn()

    def turn(self) -> None:
        """Change everything once."""
        self._round += 1
        for card in range(GPUS):
            values = self.values(card)
            for fake in self._fakes:
                fake.set(card, **values)

    def values(self, card: int) -> dict[str, int]:
        """Return the next values of one card."""
        dice, now = self._dice, self._round
        power = dice.randint(255_000, 300_000)
        clock = 1500 + 15 * dice.randint(0, 12)
        return {
            "utilization": dice.randint(70, 100),
            "memory_activity": dice.randint(20, 60),
            "memory_used": 31 * GIB + dice.randint(0, 1 << 28),
            "memory_free": 13 * GIB + dice.randint(0, 1 << 28),
            "temperature": dice.randint(66, 79),
            "power": power,
            "power_average": power - dice.randint(0, 5000),
            "energy": 10**12 + now * power // 2,
            "clock_graphics": clock,
            "clock_sm": clock,
            "clock_memory": 7251,
            "clock_video": clock - 150,
            "reasons": dice.choice((0, 0x4)),
            "performance_state": 0,
            "bar1_used": 5 * (1 << 20) + now,
            "decoder": dice.randint(0, 30),
            "encoder": dice.randint(0, 30),
            "fan_speed": dice.randint(55, 75),
            "pcie_transmit": 3 * 10**9 + now * 10**9 + card,
            "pcie_receive": 4 * 10**9 + now * 2 * 10**9 + card,
            "pcie_transmit_rate": dice.randint(1000, 2000),
            "pcie_receive_rate": dice.randint(20_000, 40_000),
            "event_power": now * 10**8 + card,
        }

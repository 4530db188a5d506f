"""Control of the fake dcgmi: what it answers to each subcommand, and what it was asked.

fake = FakeDcgmi(tmp_path / "dcgmi")
fake.answers("discovery", listing({"0": UUID}))
fake.answers("dmon", rows({"GPU 0": {1002: "0.500"}}, unsupported=[1011, 1012]))
config: [sources.dcgm] mode = "dmon", dcgmi = str(fake.program)
"""

import json
import sys as system
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PROGRAM = Path(__file__).with_name("dcgmi")
Answer = Mapping[str, Any]
NO_ENGINE = (
    "Error: unable to establish a connection to the specified host: localhost\n"
    "Error: Unable to connect to host engine. Host engine connection invalid/disconnected.\n"
)


class FakeDcgmi:
    """A folder with a dcgmi in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True)
        self.program = folder / "dcgmi"
        self._orders: dict[str, Sequence[Answer]] = {}
        _, _, script = PROGRAM.read_text().partition("\n")
        self.program.write_text(f"#!{system.executable} -IS\n{script}")  # `python3` may be a slow wrapper
        self.program.chmod(0o755)

    def answers(self, command: str, *answers: Answer) -> None:
        """Set the answers to a subcommand; the last one repeats."""
        self._orders[command] = answers
        (self._folder / "orders.json").write_text(json.dumps(self._orders))

    def calls(self) -> list[list[str]]:
        """Return the arguments of all calls so far."""
        return [call["argv"] for call in self._calls()]

    def pids(self) -> list[int]:
        """Return the processes that they were."""
        return [call["pid"] for call in self._calls()]

    def _calls(self) -> list[dict[str, Any]]:
        file = self._folder / "calls"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def listing(uuids: Mapping[str, str]) -> Answer:
    """Answer `discovery -l` with these GPUs."""
    rule = f"+--------+{'-' * 70}+\n"
    text = f"{len(uuids)} GPUs found.\n{rule}| GPU ID | {'Device Information':<68} |\n{rule}"
    for index, uuid in uuids.items():
        for cell, words in (
            (index, "Name: NVIDIA A100-SXM4-40GB"),
            ("", f"PCI Bus ID: 00000000:{int(index) + 7:02X}:00.0"),
            ("", f"Device UUID: {uuid}"),
        ):
            text += f"| {cell:<6} | {words:<68} |\n"
        text += rule
    return {
        "text": text + f"0 NvSwitches found.\n+-----------+\n| Switch ID |\n+-----------+\n+-----------+\n0 CPUs found.\n{rule}"
    }


def rows(entities: Mapping[str, Mapping[int, str]], unsupported: Sequence[int] = ()) -> Answer:
    """Answer `dmon` with these entities ("GPU 0", "GPU-I 3"); a field that is `unsupported` makes the whole call fail."""
    return {"rows": {entity: {str(field): text for field, text in values.items()} for entity, values in entities.items()}} | {
        "unsupported": list(unsupported)
    }

"""Pages of a dcgm-exporter, as text."""

from collections.abc import Mapping

UUIDS = tuple(f"GPU-{number:08x}-62f9-8b4b-6b9f-843148c4add1" for number in range(8))


def row(name: str, value: str, gpu: int = 0, /, **labels: str) -> str:
    """Return one row of a GPU, as release 3 and 4 write it."""
    shown = {
        "gpu": str(gpu),
        "UUID": UUIDS[gpu],
        "pci_bus_id": f"00000000:{gpu + 1:02X}:00.0",
        "device": f"nvidia{gpu}",
        "modelName": "NVIDIA A100-SXM4-80GB",
        "Hostname": "vision-07",
    } | labels
    inner = ",".join(f'{label}="{said}"' for label, said in shown.items())
    return f"{name}{{{inner}}} {value}\n"


def page(values: Mapping[str, str], gpus: int = 1, **labels: str) -> str:
    """Return a page on which every GPU has these values."""
    return "".join(
        f"# HELP {name} Something.\n# TYPE {name} gauge\n" + "".join(row(name, value, gpu, **labels) for gpu in range(gpus))
        for name, value in values.items()
    )

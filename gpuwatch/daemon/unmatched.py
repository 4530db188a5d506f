"""What the configuration says of GPUs that this host does not have: a typing error, or a card that was taken out. Pure."""

from collections.abc import Iterable, Iterator

from gpuwatch.catalogue import gpu, host
from gpuwatch.daemon.cards import cards
from gpuwatch.daemon.troubles import driver_state, place
from gpuwatch.model.view import View
from gpuwatch.rules.rule import Rule


def unmatched(view: View, addresses: Iterable[str], rules: Iterable[Rule]) -> Iterator[str]:
    """Yield the names ([gpus]) and the numbers ([[rules.NAME.only]]) that are for no GPU; none before all GPUs are known."""
    here = [entry.target for entry in cards(view)]
    on_bus = {entry.target.key for entry in view.of(host.PCI)}
    if not here or driver_state(view) != "ok":
        return
    if any(gpu.VISIBLE["pci"] in entry.values for entry in view.of(gpu.GPUS)):
        there = on_bus | {place(entry) for entry in cards(view)}
        yield from (f"[gpus] has a label for {address}, where no GPU is" for address in addresses if address not in there)
    if not all(one.info.get("name") for one in here):
        return
    for rule in rules:
        for only in rule.only if rule.subject is gpu.GPU else ():
            if not any(only.matches(one) for one in here):
                wanted = [f'{key} = "{value}"' for key, value in (("model", only.model), ("uuid", only.uuid)) if value != "*"]
                yield f"[[rules.{rule.name}.only]] with {' and '.join(wanted)} is for no GPU of this host"

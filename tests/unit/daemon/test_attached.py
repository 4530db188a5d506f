"""One GPU is one GPU after a release, though it is known by its UUID on one side and by its address on the other."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from msgspec.structs import replace

from gpuwatch.catalogue.gpu import GPU
from gpuwatch.model.reading import Fault
from gpuwatch.model.target import Target
from tests.fakes.letting_go import A, B, Host

PLACE = "0000:40:00.0"
NAMED = replace(B, info={**B.info, "pci_bus_id": PLACE})
GONE = Fault("lost", "it has fallen off the bus")


@pytest.fixture
def host() -> Iterator[Host]:
    """Return a host with a daemon that has just started."""
    with ExitStack() as stack:
        yield Host(stack)


def nameless(**info: str) -> Target:
    """Return the same GPU as it is known by its address alone."""
    return Target(subject=GPU, key=PLACE, labels={"gpu": "1", "uuid": PLACE}, info=info)


@pytest.mark.parametrize("target", [nameless(), nameless(pci_bus_id=PLACE)], ids=["by its key", "by its facts"])
@pytest.mark.parametrize("was_lost", [False, True])
def test_a_gpu_that_has_lost_its_name_is_missing_once(host: Host, target: Target, *, was_lost: bool) -> None:
    host.shows(*([A] if was_lost else [A, NAMED]))
    if was_lost:
        host.post(NAMED, {}, fault=GONE)
    host.releasing.release(600, "root")
    host.restart()
    host.releasing.resume("root")
    host.shows(A)
    host.post(target, {}, fault=GONE)
    host.beat()
    same = f"driver 535.154.05, 1 GPU, same UUID, lost as before: GPU 1 {PLACE}"
    words = same if was_lost else "driver 535.154.05, 2 -> 1 GPU, gone: GPU 1 GPU-1"
    assert [event.words for event in host.events] == [words]
    assert host.releasing.state()["missing"] == ([PLACE] if was_lost else ["GPU-1"])

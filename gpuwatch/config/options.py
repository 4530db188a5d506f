"""Every option but those of [sources], its default and its limits."""

from typing import Annotated, Any, Literal

import msgspec

from gpuwatch.config.section import Kept, Least, Section
from gpuwatch.config.sources import Sources
from gpuwatch.model.quantity import Duration, Size


class Http(Section, frozen=True):
    """Who may ask: TCP address, Unix socket, TLS and passwords (Prometheus' web-config file)."""

    listen: str = "127.0.0.1:9843"  # "" switches TCP off
    socket: str = ""  # default: gpuwatch.sock in the runtime folder
    web_config: str = ""
    details: bool = False  # the page also has what hardly anybody looks at, some 60 series more a GPU (docs/metrics.md marks it)


class Host(Section, frozen=True):
    """What this host is called in messages, and its labels."""

    name: str = ""  # default: the host name
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class Gpu(Section, frozen=True):
    """What the operator calls the GPU at a PCI address, in any spelling (`[gpus."0000:65:00.0"] label = "slot 3"`)."""

    label: str


class Inventory(Section, frozen=True):
    """How many GPUs this host should have; learned where not said."""

    gpus: Annotated[int, msgspec.Meta(ge=0, le=1024)] | None = None


class Store(Section, frozen=True):
    """Where history is kept, for how long and up to which size."""

    url: str = ""  # default: gpuwatch.db in the state folder
    state: str = ""  # file of the alert memory; default: state.db beside the history, in the state folder for a database server
    max_size: Annotated[Size | None, Least("16MiB")] = None  # default: the smaller of 2 GiB and 5 % of the file system
    keep_raw: Kept = Duration(7 * 86400)
    keep_incidents: Kept = Duration(3 * 365 * 86400)


class Paths(Section, frozen=True):
    """Where the host's trees are: for containers and tests, as node_exporter has them."""

    proc: str = "/proc"
    sys: str = "/sys"
    dev: str = "/dev"
    root: str = "/"


class Processes(Section, frozen=True):
    """Processes on GPUs: how many are looked at, and whether each has its series on the page (history always has them)."""

    series: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=1024)] = 64  # those with the most GPU memory; their loaders: four times as many
    users: Annotated[int, msgspec.Meta(ge=1, le=64)] = 3  # users with series of their own, for each GPU; the rest is "other"
    jobs: Annotated[int, msgspec.Meta(ge=1, le=64)] = 3  # likewise jobs


class Privacy(Section, frozen=True):
    """What is told of people, in metrics, history and messages: their name, their number, or nothing."""

    users: Literal["name", "uid", "off"] = "name"


class Route(Section, frozen=True):
    """Which receivers hear of which alerts. No route: every receiver hears of warning and above."""

    receivers: list[str]
    match: dict[str, str] = msgspec.field(
        default_factory=dict
    )  # label = value, all must hold; `severity` and `rule` count as labels
    min_severity: str = "warning"
    continue_: bool = msgspec.field(name="continue", default=False)


class Config(Section, frozen=True):
    """All of it. `rules` and `receivers` are converted by their rooms."""

    http: Http = Http()
    host: Host = Host()
    gpus: dict[str, Gpu] = msgspec.field(default_factory=dict)
    inventory: Inventory = Inventory()
    store: Store = Store()
    paths: Paths = Paths()
    sources: Sources = Sources()
    processes: Processes = Processes()
    privacy: Privacy = Privacy()
    rules: dict[str, Any] = msgspec.field(default_factory=dict)
    receivers: list[dict[str, Any]] = msgspec.field(default_factory=list)
    routes: list[Route] = msgspec.field(default_factory=list)

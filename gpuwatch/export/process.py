"""What prometheus_client says of this very process: `process_*` (from /proc/self) and `python_info`."""

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.exposition import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics_text


class ProcessText:
    """The families of this process, in both formats. They are read when asked for; reading takes no lock and no device."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)

    def text(self, *, openmetrics: bool) -> str:
        """Return the families with their comments, without OpenMetrics' end mark."""
        if openmetrics:
            body: bytes = openmetrics_text.generate_latest(self._registry)  # type: ignore[no-untyped-call]  # not typed there
            return body.decode().removesuffix("# EOF\n")
        return generate_latest(self._registry).decode()

"""The page that Prometheus reads: rendered on the first scrape after a beat, then a copy of bytes."""

import gzip as gzip_codec
import threading
from collections.abc import Callable

from gpuwatch.export.families import Renderer, Samples
from gpuwatch.export.process import ProcessText
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.view import View

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

END = {False: "", True: "# EOF\n"}

# A page older than this is rendered anew even without a beat: should the beats stop, values must still turn late (case 17).
OLDEST = 5.0


class Page:
    """The page of the present beat. Any thread may ask; however many ask at once, it is rendered once."""

    def __init__(self, view: Callable[[], View], clock: Clock | None = None) -> None:
        self._view = view
        self._clock = clock or SystemClock()
        self._renderer = Renderer()
        self._process = ProcessText()
        self._lock = threading.Lock()
        self._turn = 0
        self._rendered: tuple[int, float] | None = None  # the turn and the time (monotonic) of what is kept
        self._samples = Samples(())
        self._kept: dict[tuple[bool, bool], bytes] = {}

    def turn(self) -> None:
        """Say that a new beat is on the board; one thread does."""
        self._turn += 1

    def get(self, *, openmetrics: bool = False, gzip: bool = False) -> bytes:
        """Return the page, as text 0.0.4 or OpenMetrics 1.0, plain or compressed."""
        with self._lock:
            turn, now = self._turn, self._clock.mono()
            if self._rendered is None or self._rendered[0] != turn or now - self._rendered[1] >= OLDEST:
                self._rendered = None  # should the view raise, the old page is not served in its place
                self._kept.clear()
                self._samples = self._renderer.render(self._view())
                self._rendered = (turn, now)
            return self._variant(openmetrics=openmetrics, gzip=gzip)

    def _variant(self, *, openmetrics: bool, gzip: bool) -> bytes:
        """Return one variant of this beat, made when it is first asked for; the compressed one is the plain one compressed."""
        body = self._kept.get((openmetrics, gzip))
        if body is None:
            if gzip:
                body = gzip_codec.compress(self._variant(openmetrics=openmetrics, gzip=False), compresslevel=1, mtime=0)
            else:
                samples, process = self._samples.text(openmetrics=openmetrics), self._process.text(openmetrics=openmetrics)
                body = f"{samples}{process}{END[openmetrics]}".encode()
            self._kept[openmetrics, gzip] = body
        return body

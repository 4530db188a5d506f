"""What clients read of a beat, Prometheus' page and the JSON: made when first asked for, then the same bytes for all."""

import gzip as gzip_codec
import threading
from collections.abc import Callable, Collection

from gpuwatch.export.families import Renderer, Samples
from gpuwatch.export.process import ProcessText
from gpuwatch.model.clock import Clock, SystemClock
from gpuwatch.model.metric import Metric, Subject
from gpuwatch.model.view import View

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"

END = {False: "", True: "# EOF\n"}

# A page older than this is rendered anew even without a beat: should the beats stop, values must still turn late (case 17).
OLDEST = 5.0


class Page:
    """The present beat as bytes. Any thread may ask; however many ask at once, each form is made once.

    Prometheus does not see what is in `hidden`; the JSON has it.
    """

    def __init__(self, view: Callable[[], View], clock: Clock | None = None, hidden: Collection[Subject | Metric] = ()) -> None:
        self._view = view
        self._clock = clock or SystemClock()
        self._renderer = Renderer(hidden)
        self._process = ProcessText()
        self._lock = threading.Lock()
        self._turn = 0
        self._taken: tuple[int, float] | None = None  # the turn and the time (monotonic) of what is kept
        self._now: View | None = None
        self._samples: Samples | None = None
        self._kept: dict[tuple[bool, bool], bytes] = {}
        self._json: bytes | None = None

    def turn(self) -> None:
        """Say that a new beat is on the board; one thread does."""
        self._turn += 1

    def get(self, *, openmetrics: bool = False, gzip: bool = False) -> bytes:
        """Return the page, as text 0.0.4 or OpenMetrics 1.0, plain or compressed."""
        with self._lock:
            view = self._fresh()
            if self._samples is None:
                self._samples = self._renderer.render(view)
            return self._variant(self._samples, openmetrics=openmetrics, gzip=gzip)

    def json(self, encode: Callable[[View], bytes]) -> bytes:
        """Return the view as `encode` writes it, which is always the same function."""
        with self._lock:
            view = self._fresh()
            if self._json is None:
                self._json = encode(view)
            return self._json

    def _fresh(self) -> View:
        """Return the view of this beat; what was made of an older one is forgotten."""
        turn, now = self._turn, self._clock.mono()
        if self._now is None or self._taken is None or self._taken[0] != turn or now - self._taken[1] >= OLDEST:
            self._now = self._samples = self._json = None  # should the view raise, the old page is not served in its place
            self._kept.clear()
            self._now, self._taken = self._view(), (turn, now)
        return self._now

    def _variant(self, samples: Samples, *, openmetrics: bool, gzip: bool) -> bytes:
        """Return one variant of this beat, made when it is first asked for; the compressed one is the plain one compressed."""
        body = self._kept.get((openmetrics, gzip))
        if body is None:
            if gzip:
                body = gzip_codec.compress(self._variant(samples, openmetrics=openmetrics, gzip=False), compresslevel=1, mtime=0)
            else:
                text, process = samples.text(openmetrics=openmetrics), self._process.text(openmetrics=openmetrics)
                body = f"{text}{process}{END[openmetrics]}".encode()
            self._kept[openmetrics, gzip] = body
        return body

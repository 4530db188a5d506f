"""The page at `/`: where am I, and what is here. Plain HTML without anything from elsewhere."""

from html import escape

from gpuwatch import __version__
from gpuwatch.export.message import Response

LINKS = (
    ("/metrics", "the numbers, for Prometheus"),
    ("/-/ready", "whether there is something fresh to tell, and what is in the way"),
    ("/-/healthy", "whether the process lives"),
    ("/api/v1/view", "what is known now, as JSON"),
    ("/api/v1/alerts", "open alerts, as JSON"),
    ("/api/v1/events", "what driver and kernel have told, as JSON"),
    ("/api/v1/history", "what was, by ?metric=: values and what happened meanwhile, as JSON"),
    ("/api/v1/silences", "of what nobody is told for a time, as JSON"),
    ("/api/v1/release", "whether the GPUs are released, as JSON"),
    ("/api/v1/status", "the state of gpuwatch itself, as JSON"),
)
UNTOLD = "<p><strong>Nobody will be told of alerts: no receiver is configured.</strong></p>\n"
POLICY = ("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>gpuwatch on {host}</title>
<style>body {{ font: 1rem/1.6 sans-serif; margin: 2rem auto; max-width: 40rem; padding: 0 1rem }}</style>
</head>
<body>
<h1>gpuwatch on {host}</h1>
<ul>
{links}
</ul>
{warning}<p>gpuwatch {version}</p>
</body>
</html>
"""


def landing(host: str, *, nobody: bool) -> Response:
    """Return the landing page of this host; `nobody`: no receiver is configured."""
    links = "\n".join(f'<li><a href="{path}">{path}</a>: {escape(words)}</li>' for path, words in LINKS)
    body = HTML.format(host=escape(host), links=links, version=escape(__version__), warning=UNTOLD if nobody else "")
    return Response(200, body.encode("utf-8", "backslashreplace"), "text/html; charset=utf-8", (POLICY,))

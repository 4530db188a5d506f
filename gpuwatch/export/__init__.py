"""What Prometheus and other programs see: the page, the JSON API, and the HTTP server under them.

A new answer is one `Route` in `api.py`: a function from Request to Response, marked `slow` when it may take longer than a
few milliseconds and `changes` when it changes state. A new metric needs nothing here: the page follows the catalogue.
"""

"""Fingerprints are Alertmanager's."""

from gpuwatch.notify.fingerprint import fingerprint


def test_a_fingerprint_is_the_one_alertmanager_shows() -> None:
    labels = {"severity": "warning", "gpu": "0", "alertname": "A_no_ends", "instance": "host1"}
    assert fingerprint(labels) == "a46a513e2068acc5"


def test_no_labels_have_the_offset_as_their_fingerprint() -> None:
    assert fingerprint({}) == "cbf29ce484222325"

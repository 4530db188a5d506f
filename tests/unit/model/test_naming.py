"""What can match no alert is refused in words that say what would; what can match one is taken."""

import pytest

from gpuwatch.model.alert import Severity
from gpuwatch.model.naming import Firing, Naming
from gpuwatch.model.silence import Matcher

INFO, WARNING, CRITICAL = Severity
NAMING = Naming(
    (
        Firing(rule="hot", severities=(WARNING, CRITICAL), labels=("gpu", "uuid")),
        Firing(rule="gone", severities=(CRITICAL,), labels=("gpu", "uuid")),
        Firing(rule="bus", severities=(WARNING, CRITICAL), labels=("port",)),
        Firing(rule="boot", severities=(WARNING,), labels=()),
        Firing(rule="full", severities=(INFO,), labels=("mountpoint",)),
    ),
    {"rack": "A3"},
    off=frozenset({"full"}),
)


def matchers(text: str) -> list[Matcher]:
    """Return the conditions of `gpu=3 rule!=hot`."""
    found = []
    for word in text.split():
        name, _, value = word.partition("=")
        found.append(Matcher(name=name.rstrip("!"), value=value, is_equal=not name.endswith("!")))
    return found


@pytest.mark.parametrize(
    ("text", "label", "words"),
    [
        ("device=vda", "device", '"device" is not a label of any alert; known are gpu, host, mountpoint, port, rack, rule, '),
        ("device!=vda", "device", '"device" is not a label of any alert; '),
        ("severity=info", "severity", "no alert of this host has severity=info; there is warning, critical"),
        (
            "severity!=critical severity!=warning",
            "severity",
            "no alert of this host has severity!=critical and severity!=warning; there is warning, critical",
        ),
        ("severity=warning rule=gone", "severity", "no alert of gone has severity=warning; there is critical"),
        ("rule=gone severity!=critical", "severity", "no alert of gone has severity!=critical; there is critical"),
        ("gpu=3 rule=boot", "gpu", "no alert of boot has a label gpu; they have host, rack, rule, severity"),
        ("gpu=3 port=x", "port", "no alert of hot or gone has a label port; they have gpu, host, rack, rule, severity, uuid"),
        ("rule!=bus port=x", "port", "no alert of hot or gone or boot has a label port; they have gpu, "),
        ("rule=full", "rule", "rule full is switched off"),
        ("mountpoint=/", "mountpoint", "no alert of this host has a label mountpoint; they have gpu, "),
        (
            "rule!=hot rule!=gone rule!=bus rule!=boot",
            "rule",
            "no alert of this host has rule!=hot and rule!=gone and rule!=bus and rule!=boot; there is hot, ",
        ),
        ("gpu=3 gpu=4", "gpu", "no alert has gpu=3 and gpu=4 at once"),
        ("gpu!=3 gpu=3", "gpu", "no alert has gpu=3 and gpu!=3 at once"),
        ("rule=hot rule=gone", "rule", "no alert has rule=hot and rule=gone at once"),
    ],
)
def test_what_no_alert_can_be_is_refused_with_what_they_can_be(text: str, label: str, words: str) -> None:
    found = NAMING.mistake(matchers(text))
    assert found is not None
    assert (found.label, found.words[: len(words)]) == (label, words)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "gpu=3",
        "gpu=3 gpu!=4 uuid=GPU-1",
        "gpu=3 gpu=3",
        "gpu!=3 rule=boot",
        "port=0000:00:01.0 severity=critical",
        "severity=warning rule!=hot",
        "rack=B7 host=vision-08 rule=boot",  # hosts share a file of routes
        "rule!=full",
    ],
)
def test_what_an_alert_can_be_is_taken(text: str) -> None:
    assert NAMING.mistake(matchers(text)) is None


def test_a_rule_that_is_off_counts_where_that_is_said() -> None:
    assert NAMING.mistake(matchers("rule=full mountpoint=/ severity=info"), with_off=True) is None
    found = NAMING.mistake(matchers("rule=full gpu=3"), with_off=True)
    assert found is not None
    assert found.words == "no alert of full has a label gpu; they have host, mountpoint, rack, rule, severity"


def test_what_is_never_as_grave_as_is_asked_for_is_refused() -> None:
    found = NAMING.mistake(matchers("rule=boot"), least=CRITICAL)
    assert found == ("", "no alert that is meant is critical or worse; there is warning")
    assert NAMING.mistake(matchers("rule=hot"), least=CRITICAL) is None


def test_of_many_rules_a_refusal_says_how_many() -> None:
    many = tuple(Firing(rule=f"rule_{number}", severities=(WARNING,), labels=("gpu",)) for number in range(9))
    found = Naming((*many, *NAMING.firings)).mistake(matchers("gpu=3 port=x"))
    assert found is not None
    assert found.words.startswith("no alert of these 11 rules has a label port; they have gpu")

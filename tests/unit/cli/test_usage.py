"""What the command line says of a word that it does not know, and how wide its help is."""

import pytest

from gpuwatch.cli import COMMANDS, main

OF_A_COMMAND = "; `--` stands before a command with options of its own"


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Return the last line that a wrong command line is answered with."""
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    return capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nope"], "gpuwatch: error: there is no option --nope before the command; --help lists all"),
        (["--versoin"], "gpuwatch: error: there is no option --versoin before the command; did you mean --version?"),
        (["statsu"], "gpuwatch: error: there is no command statsu; did you mean status?"),
        (["x\x1b[2J"], "gpuwatch: error: there is no command x\\x1b[2J; `gpuwatch --help` lists all"),
        (
            ["release", "nvidia-smi", "-r"],
            "gpuwatch release: error: there is no option -r; did you mean --for?" + OF_A_COMMAND,
        ),
        (
            ["release", "nvidia-smi", "--gpu-reset=1"],
            "gpuwatch release: error: there is no option --gpu-reset; --help lists all" + OF_A_COMMAND,
        ),
        (["release", "-i"], "gpuwatch release: error: there is no option -i; --help lists all"),
        (["status", "--jsno"], "gpuwatch status: error: there is no option --jsno; did you mean --json?"),
        (["status", "--jsno=1"], "gpuwatch status: error: there is no option --jsno; did you mean --json?"),
        (["history", "--zzz"], "gpuwatch history: error: there is no option --zzz; --help lists all"),  # METRIC lacks, too
        (["silence", "-x"], "gpuwatch silence: error: there is no option -x; --help lists all"),
        (["config", "chek"], "gpuwatch config: error: argument {check,show,options}: there is no chek; did you mean check?"),
        (
            ["config", "x\x1b"],
            "gpuwatch config: error: argument {check,show,options}: there is no x\\x1b; known are check, options, show",
        ),
        (["apt", "befor"], "gpuwatch apt: error: argument {before,after}: there is no befor; did you mean before?"),
        (["read", "nvm"], "gpuwatch read: error: argument SOURCE: there is no nvm; did you mean nvml?"),
        (["metrics", "--subject", "gup"], "gpuwatch metrics: error: argument --subject: there is no gup; did you mean gpu?"),
    ],
)
def test_a_word_that_is_not_known_is_named_with_what_comes_nearest(
    capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert refused(words, capsys) == said


@pytest.mark.parametrize(
    "words",
    [
        ["events", "--sinc", "-1h", "--limit", "0"],  # a beginning, and a time
        ["events", "--file=-", "--limit", "0"],
        ["events", "--limit", "0", "--gpu", "--not an option"],
    ],
)
def test_the_beginning_of_an_option_and_values_are_taken(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err == "gpuwatch events: --limit: expected a number from 1 to 10000, got 0\n"


def test_options_of_somebody_elses_command_are_not_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["release", "--for", "nonsense", "--", "nvidia-smi", "--gpu-reset"]) == 2
    assert "--gpu-reset" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str) -> None:
    with monkeypatch.context() as inside:
        inside.setenv("COLUMNS", "80")
        with pytest.raises(SystemExit) as ended:
            main([*filter(None, [command]), "--help"])
    assert ended.value.code == 0
    text, _, examples = capsys.readouterr().out.partition("\nexample: ")
    options = examples.partition("\n\n")[2]
    assert [line for line in (text + "\n" + options).splitlines() if len(line) > 80] == []


def test_an_option_that_comes_twice_is_refused_and_one_that_may_come_often_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["history", "power_watts", "--since", "1h", "--label", "a=1", "--label", "b=2", "--since", "2h"])
    assert (ended.value.code, capsys.readouterr().err.splitlines()[-1]) == (
        2,
        "gpuwatch history: error: --since is given twice; one value is taken",
    )

"""How the command line explains itself: help as wide as the terminal, and of an unknown word which one comes nearest."""

import argparse
import re
import shutil
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence

from gpuwatch.model.escape import printable
from gpuwatch.model.nearest import advice, hint

NEGATIVE = re.compile(r"-\d\S*", re.ASCII)
OPTION = re.compile(r"(?<![\w-])--?[a-z][a-z-]*")
FIRST = ("-h", "--help", "--version")  # options that stand in place of a command
NARROWEST = 30


def width() -> int:
    """Return how wide a text may be: two columns less than the terminal, as argparse makes its own part of the help."""
    return max(NARROWEST, shutil.get_terminal_size().columns - 2)


def wrapped(text: str, columns: int, indent: int = 0) -> str:
    """Break a line between words so that it has at most so many columns; those after the first are indented."""
    lines = textwrap.wrap(text, columns, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines)


def folded(text: str) -> str:
    """Break the paragraphs of a text where the terminal ends; examples keep their lines, since people copy them."""
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(one if one.startswith("example:") else wrapped(" ".join(one.split("\n")), width()) for one in paragraphs)


def listed(commands: Mapping[str, str]) -> str:
    """Return the commands with what they do."""
    return "\n".join(wrapped(f"  {name:9} {text}", width(), 12) for name, text in commands.items())


def options_of(parser: argparse.ArgumentParser) -> list[str]:
    """Return every option that a parser has; its usage has them all, of --help only the short one."""
    return ["--help", *OPTION.findall(parser.format_usage())]


class Once(argparse.Action):
    """Takes the value of an option that may come once: argparse's own lets the last win, and says nothing of the others."""

    is_given = False

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: object, option_string: str | None = None
    ) -> None:
        """Keep the value; a second one is the caller's mistake."""
        if self.is_given and option_string is not None:
            parser.error(f"{option_string} is given twice; one value is taken")
        self.is_given = True
        setattr(namespace, self.dest, values)


def one_of(names: Sequence[str]) -> Callable[[str], str]:
    """Return what takes one of these words for a value of an option; argparse's own `choices` lists all and hints at none."""

    def chosen(word: str) -> str:
        if word in names:
            return word
        raise argparse.ArgumentTypeError(f"there is no {printable(word, 40)}{advice(word[:40], names)}")

    return chosen


def no_command(word: str, commands: Iterable[str]) -> str:
    """Say that this is no command, and which comes nearest."""
    if word.startswith("-"):
        return no_option(word, FIRST, " before the command")
    return f"there is no command {printable(word, 40)}{hint(word[:40], commands) or '; `gpuwatch --help` lists all'}"


def unknown_option(words: Sequence[str], options: Sequence[str]) -> str:
    """Return the first word that is an option and none of these or the beginning of one, "" where there is none."""
    for word in words:
        if word == "--":  # what follows is somebody else's
            break
        name = word.partition("=")[0]
        is_option = len(word) > 1 and word.startswith("-") and " " not in word and not NEGATIVE.fullmatch(word)
        if is_option and not any(option.startswith(name) for option in options):
            return name
    return ""


def no_option(name: str, options: Sequence[str], where: str = "") -> str:
    """Say that this is no option, and which comes nearest."""
    known = [option.removeprefix("--") for option in options]  # dashes alone are not near
    near = hint(name[:40].lstrip("-"), known, head="--")
    return f"there is no option {printable(name, 40)}{where}{near or '; --help lists all'}"


def of_a_command(words: Sequence[str], option: str, parser: argparse.ArgumentParser) -> str:
    """Say how an option is left to the command that is to be run, where the parser takes one and one is there."""
    before = words[: next(place for place, word in enumerate(words) if word.partition("=")[0] == option)]
    if "[-- CMD" not in parser.format_usage() or not before or before[-1].startswith("-"):
        return ""
    return "; `--` stands before a command with options of its own"


def joined(words: Sequence[str]) -> list[str]:
    """Return the words with `--since -1h` as `--since=-1h`: argparse takes -1h for an option, and says that a value lacks."""
    found: list[str] = []
    for place, word in enumerate(words):
        if word == "--":  # what follows is somebody else's
            return [*found, *words[place:]]
        if found and found[-1].startswith("--") and "=" not in found[-1] and NEGATIVE.fullmatch(word):
            found[-1] += f"={word}"
        else:
            found.append(word)
    return found

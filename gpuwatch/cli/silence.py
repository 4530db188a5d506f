"""Tell nobody of some alerts of this host, or of any, for a time; list or end that. It ends by itself.

Without LABEL=VALUE it is for the whole host. Alerts go on firing meanwhile and are shown, as silenced, by `gpuwatch status`. When
it ends, people are told of what fires then and was not told before, and of the end of what was; what began and ended within it
is told to nobody. Labels are those of an alert: rule, severity, host, gpu, uuid, port
(of `bus_errors`), and those of [host] labels; what no alert can be is refused.

Making and ending one needs root or the group gpuwatch-admin. Exit code 1: the daemon refuses, or there is no such silence;
2: something in the command is wrong; 3: no daemon answers, or none in time: then it may have done what was asked.

example: gpuwatch silence --for 2h --comment "fans are changed"
         gpuwatch silence rule=gpu_overheating gpu=3 --for 7d
         gpuwatch silence --list
"""

import argparse
import json
import sys
from typing import Any

from gpuwatch.cli import ask
from gpuwatch.cli.lasting import lasting
from gpuwatch.cli.status import of_silence
from gpuwatch.client import Reply
from gpuwatch.config import ConfigError
from gpuwatch.model.escape import printable, visible
from gpuwatch.model.silence import DAY, LONGEST

PLACE = "gpuwatch silence"
SHORTEST = 1.0  # seconds: less is over before anybody is kept from being told
DOUBT = "it may have been taken all the same: `gpuwatch silence --list` shows what holds"


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument("labels", nargs="*", metavar="LABEL=VALUE", help="what an alert must be to be silenced; all must hold")
    parser.add_argument("--for", dest="lasts", metavar="TIME", help=f"how long: 30m, 2h, 7d; at most {LONGEST / DAY:.0f}d")
    parser.add_argument("--comment", metavar="TEXT", help="why, for whoever looks")
    other = parser.add_mutually_exclusive_group()
    other.add_argument("--list", action="store_true", help="show the silences that are not over")
    other.add_argument("--end", metavar="ID", help="end a silence now")
    ask.add(parser)


def run(args: argparse.Namespace) -> int:
    """Ask the daemon for what is wanted, and say what came of it."""
    if (args.list or args.end is not None) and (args.labels or args.lasts is not None or args.comment is not None):
        raise ConfigError(PLACE, "", f"{'--list' if args.list else '--end'} stands alone")
    return ask.conversation(PLACE, lambda: talk(args), "" if args.list else DOUBT)


def talk(args: argparse.Namespace) -> int:
    """Ask, and say what came of it; raises what `ask.conversation` takes."""
    client = ask.client(args)
    if args.list:
        return shown(ask.granted(args, PLACE, client.get("/api/v1/silences"), changes=True))
    path, wish = ("/api/v1/silences", wished(args)) if args.end is None else ("/api/v1/silences/end", {"id": args.end})
    reply = ask.granted(args, PLACE, client.post(path, encoded(wish), ask.PATIENCE), changes=True)
    return made(reply) if args.end is None else ended(reply)


def wished(args: argparse.Namespace) -> dict[str, Any]:
    """Return the silence that is wanted; raises ConfigError."""
    if args.lasts is None:
        raise ConfigError(PLACE, "--for", "is missing: how long, such as 30m, 2h or 7d")
    seconds = lasting(PLACE, args.lasts, SHORTEST, LONGEST)
    matchers = []
    for text in args.labels:
        name, separator, value = text.partition("=")
        if not (name and separator and value):
            raise ConfigError(PLACE, "", f'expected LABEL=VALUE, such as gpu=3, got "{printable(text)}"')
        matchers.append({"name": name, "value": value})
    return {"matchers": matchers, "seconds": seconds, "comment": args.comment or ""}


def encoded(wish: dict[str, Any]) -> bytes:
    """Return it as JSON; what is no text (bytes on the command line that are not UTF-8) becomes visible."""
    return json.dumps(visible(wish)).encode()


def made(reply: Reply) -> int:
    """Say that the silence is made."""
    answer = reply.json()
    silence = answer["silence"]
    how = "was silenced already, and the later end counts" if answer.get("already") else "silenced"
    print(printable(f"{silence['id']}  {how}: {of_silence(silence, answer['now'])}", 1000))
    return warned(answer)


def ended(reply: Reply) -> int:
    """Say that it has ended."""
    answer = reply.json()
    print(printable(f"{answer['silence']['id']}  has ended: {answer['silence']['of']}", 1000))
    return warned(answer)


def warned(answer: dict[str, Any]) -> int:
    """Say so where the disk did not take it: it holds all the same."""
    if not answer["stored"]:
        print(f"{PLACE}: it holds, but it is not stored yet: the disk does not answer", file=sys.stderr)
    return 0


def shown(reply: Reply) -> int:
    """Print the silences that are not over, one a line."""
    page = reply.json()
    if not page.get("complete", True):
        print(
            f"{PLACE}: the alert memory has not been read yet: there may be more, which do not hold until then", file=sys.stderr
        )
    lasting = [silence for silence in page["silences"] if silence["state"] != "expired"]
    for silence in lasting:
        print(printable(f"{silence['id']}  {of_silence(silence, page['now'])}", 1000))
    if not lasting:
        print("nothing is silenced")
    return 0

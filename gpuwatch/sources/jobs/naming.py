"""What users and jobs are called, as far as people may know ([privacy] users), and by which key a job is known.

A name that somebody gave may say whose work it is: a unit of a user's own (jupyter@ann.service), that of a container. Where users
are told by number or not at all, a digest stands in place of such a name: work stays told apart and is the same one tomorrow.
"""

import os
import re
from collections.abc import Callable, Collection, Iterable
from hashlib import blake2b
from pathlib import Path

import msgspec

from gpuwatch.model.escape import printable
from gpuwatch.sources import sysfs
from gpuwatch.sources.jobs.containers import Named
from gpuwatch.sources.jobs.home import Home
from gpuwatch.sources.jobs.process import Process
from gpuwatch.sources.kernel.host import names_somebody

LETTERS, KEY_LETTERS = 8, 16  # of a digest that people are shown, and of one in a key
KEYS = 4096  # that are remembered
CONTESTED = 256  # names that are remembered
# Numbers of people: below are the system's own (login.defs(5)), between 61184 and 65535 those that systemd gives to units.
PEOPLE, OTHERS = 1000, range(61184, 65536)


class Naming:
    """Names by the privacy that is asked for. `names` returns the name of a user, None where it is not known (yet)."""

    def __init__(self, how: str, secret: bytes, names: Callable[[int], str | None]) -> None:
        self._how, self._secret, self._names = how, secret, names
        self._is_private = how != "name"
        self._keys: dict[Home, str] = {}  # they are asked for every round

    def user(self, uid: int) -> str:
        """Return what a user is called, "" where people may not know."""
        if self._how == "off":
            return ""
        return str(uid) if self._is_private else self._names(uid) or str(uid)

    def key(self, home: Home, top: Process | None) -> str:
        """Return by which key a job is known: its id where that holds, or the top of a tree of processes."""
        if top is not None:
            return f"{home.scheduler}/{top.key}"
        if home not in self._keys:
            if len(self._keys) >= KEYS:
                self._keys.clear()
            self._keys[home] = self._key(home)
        return self._keys[home]

    def _key(self, home: Home) -> str:
        key = "/".join((home.scheduler, *home.within, home.job))
        is_hidden = self._is_private and (home.within or home.scheduler in ("systemd", "lxc"))
        return f"{home.scheduler}/{self._digest(key, KEY_LETTERS)}" if is_hidden else key

    def label(self, home: Home, named: Named, top: Process | None, uids: Collection[int]) -> str:
        """Return what a job of these users is called. What is not of this host itself has before it of whose or what it is."""
        if top is not None:
            return f"{top.comm}-{top.pid}"
        if home.scheduler == "systemd":
            name = self.unit(home, uids)
        elif home.scheduler == "lxc" or home.pod or home.scheduler == "slurm":
            name = named.name if home.scheduler == "lxc" else home.job
        else:
            name = named.name or home.job
        machine = self._digest(home.machine) if home.machine and self._is_private else printable(home.machine)
        return "/".join(filter(None, (machine, self._whose(home), name)))

    def unit(self, home: Home, uids: Collection[int]) -> str:
        """Return what the unit of a job of these users is called: of one that may name somebody only what kind it is."""
        unit = home.unit
        if not unit or not self._is_private:
            return printable(unit)
        stem, _, kind = unit.rpartition(".")
        template, at, _ = stem.partition("@")
        if self._is_personal(template, uids):
            return f"{self._digest(unit)}.{kind}"
        if names_somebody(unit):
            return f"{template if at else ''}{at}{self._digest(unit)}.{kind}"
        return unit

    def named(self, home: Home, named: Named, uids: Collection[int]) -> Named:
        """Return the names of a container or pod of these users, without those that may name somebody."""
        if home.scheduler == "lxc":  # its name is its id
            return Named(self._digest(home.container) if self._is_private else printable(home.container))
        if not self._is_private:
            return named
        name, pod, namespace = (
            "" if self._is_personal(text, uids) else text for text in (named.name, named.pod, named.namespace)
        )
        why = named.why.removesuffix(f" of user {home.uid}") if self._how == "off" else named.why
        return Named(name, pod, namespace, why)

    def _whose(self, home: Home) -> str:
        """Return whose slice a job is in, "" where it is in none."""
        if not home.uid:
            return ""
        if self._how == "off":
            return self._digest(f"{home.machine}/{home.uid}")
        return home.uid if home.machine else self.user(int(home.uid))  # a machine has users of its own

    def _is_personal(self, text: str, uids: Collection[int]) -> bool:
        """Say whether a text has the name of one of these users in it, or may have where that is not known."""
        for uid in uids if text else ():
            if uid < PEOPLE or uid in OTHERS:
                continue
            name = self._names(uid)
            if name is None or name == str(uid):
                return True
            if re.search(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", text, re.IGNORECASE):
                return True
        return False

    def _digest(self, text: str, letters: int = LETTERS) -> str:
        """Return what stands in place of a text. Who has it and not the secret cannot find the text by trying all."""
        return blake2b(text.encode("utf-8", "backslashreplace"), key=self._secret, digest_size=letters // 2).hexdigest()


def secret(root: Path) -> bytes:
    """Return what digests of this host are made with: of its machine-id, which machine-id(5) wants told to nobody as it is."""
    return (sysfs.fact(root / "etc/machine-id").encode() or os.urandom(32))[:64]


class Labels(msgspec.Struct):
    """Which names several jobs have had at once: those stay with none of them, or one's counter would go on as the other's."""

    contested: dict[tuple[str, str], None] = {}

    def tell_apart(self, names: Iterable[tuple[str, str, str]]) -> dict[str, str]:
        """Return the labels of jobs by key, of their key, scheduler and name: with its id where a name is not one job's."""
        called: dict[tuple[str, str], list[str]] = {}
        for key, scheduler, name in names:
            called.setdefault((scheduler, name), []).append(key)
        found: dict[str, str] = {}
        for (scheduler, name), keys in called.items():
            if len(keys) > 1:
                self.contested.pop((scheduler, name), None)
                self.contested[scheduler, name] = None
            is_contested = (scheduler, name) in self.contested
            found |= {key: f"{name}-{key.partition('/')[2]}" if is_contested else name for key in keys}
        while len(self.contested) > CONTESTED:
            del self.contested[next(iter(self.contested))]
        return found

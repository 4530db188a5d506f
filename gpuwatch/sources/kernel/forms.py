"""The lines of a saved log in any of its forms -> Records: raw kmsg, journald's JSON, journalctl, syslog, all of dmesg's.

A line that begins with a blank belongs to the one before, unless the whole log is moved to the right. The kernel's own lines are
told from those of programs by the facility, by `_TRANSPORT`, or by the name before the colon; a line without any of them is taken
to be the kernel's.
"""

import re
from typing import NamedTuple

import msgspec

from gpuwatch.sources.kernel import raw, stamps
from gpuwatch.sources.kernel.addresses import PCI
from gpuwatch.sources.kernel.families import STARTS
from gpuwatch.sources.kernel.record import Dating, Record

LINE = 1 << 16  # characters of a line that are looked at; the kernel's own records have at most 2 KiB
TEXT = 1 << 14  # characters of a message with its further lines

# dmesg: [  12.345678], with a delta `< 0.000049>`, [  +0.000049], [Dec20 11:02], [Tue Mar 11 04:22:09 2025], then perhaps the
# caller [T812]. The fabric manager writes [Feb 25 2025 13:59:45].
UPTIME = re.compile(r"\[ *(\d{1,12}\.\d{1,9})(?: *< *[\d.]+>)?\](?:\[ *[TC]\d+\])? ?(.*)", re.DOTALL)
DELTA = re.compile(r"\[ *\+(\d{1,9}\.\d{1,9})\](?:\[ *[TC]\d+\])? ?(.*)", re.DOTALL)
CALENDAR = re.compile(r"\[\S+ +(\S+?) *(\d{1,2}) (\d\d:\d\d:\d\d) (\d{4})(?: *< *[\d.]+>)?\](?:\[ *[TC]\d+\])? ?(.*)", re.DOTALL)
MINUTE = re.compile(r"\[(\D{2,8}?|\d+[월月]) ?(\d{1,2}) (\d\d:\d\d)\] ?(.*)", re.DOTALL)
FABRIC = re.compile(r"\[(\w{3}) +(\d{1,2}) (\d{4}) (\d\d:\d\d:\d\d)\] \[\w+\] \[tid \d+\] ?(.*)", re.DOTALL)
LEVEL = re.compile(r"<(\d{1,3})>(.*)", re.DOTALL)
DECODED = re.compile(r"(kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local\d) *:\w+ *: ?(.*)", re.DOTALL)
SYSLOG = re.compile(r"([^\s\d\[<]{2,12}|\d{1,2}[월月]) {0,2}(\d{1,2}) (\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))? (.*)", re.DOTALL)
WEEKDAY = re.compile(r"\S{2,6} (?=\d{4}-\d\d-\d\d )")  # journalctl -o short-full
EPOCH = re.compile(r"(\d{9,11}\.\d{3,9}) (.*)", re.DOTALL)  # journalctl -o short-unix
TAG = re.compile(r"\S+ ([^\s:\[]{1,64})(?:\[\d*\])?: ?(.*)", re.DOTALL)  # host, program and process id before the message
# RFC 5424: version, time, host, program, process, kind of message, data, message; rsyslog writes it to files without the <4>.
PROTOCOL = re.compile(
    r"1 (\S+) \S+ (\S+) \S+ \S+ (?:-|(?:\[(?:[^\]\"\\]|\\.|\"(?:[^\"\\]|\\.)*\")*\])+)(?: \ufeff?(.*))?", re.DOTALL
)
HOSTED = re.compile(r"\S+ (?:kernel|[^\s:\[]{1,64}\[\d*\]): ")  # host and program
DEVICE = re.compile(rf"\w+ {PCI}: ")
STREAM = re.compile(r"std(?:out|err) [FP] ")  # a container's runtime: which of its streams, and whether the line is whole
QUOTED = re.compile(r"(?:> ?)+")
UNDER = re.compile(r"\[ *(\d+\.\d+)\] ?")  # the uptime that syslog keeps in front of the kernel's message
REPEATED = re.compile(r"message repeated (\d{1,9}) times: \[ ?(.*)\]\s*", re.DOTALL)
OCTAL = re.compile(r"#(0[0-7]{2})")  # rsyslog: #012 for a newline
BEGINS = re.compile(  # a line with a time
    r"\[ *\+?\d+\.\d|\[[^\]<]*\d\d:\d\d|<\d|\{\"|\d+[ ,.-]\d|\S{2,6} \d{4}-|[^\s\d\[<]{2,12} {1,2}\d{1,2} \d\d:\d\d"
    r"|[a-z\d]+ *:\w+ *: "
)
COLOUR = re.compile(r"\x1b\[[0-9;]*[mK]")


class Journal(msgspec.Struct):
    """The fields of one line of `journalctl -o json` that count. A text that is not UTF-8 is a list of bytes."""

    message: object = msgspec.field(name="MESSAGE", default=None)
    transport: object = msgspec.field(name="_TRANSPORT", default=None)
    identifier: object = msgspec.field(name="SYSLOG_IDENTIFIER", default=None)
    realtime: object = msgspec.field(name="__REALTIME_TIMESTAMP", default=None)


JOURNAL = msgspec.json.Decoder(Journal)


def text_of(message: object) -> str:
    """Return a message of the journal; raises ValueError for numbers that are no bytes."""
    if isinstance(message, list):
        return bytes(number for number in message if isinstance(number, int)).decode("utf-8", "replace")
    return message if isinstance(message, str) else ""


class Stamped(NamedTuple):
    """The rest of a line behind its time."""

    at: float | None
    text: str
    dating: Dating = Dating.WALL


class Forms:
    """Reads one log line by line. `booted` is the wall time of the boot that its uptimes count from, None where unknown."""

    def __init__(self, now: float, booted: float | None = None) -> None:
        self._stamps = stamps.Stamps(now)
        self._booted = booted
        self._at, self._dating = now, Dating.NONE  # of the line before
        self._held: Record | None = None  # a message that may go on
        self._is_raw = False
        self._margin: str | None = None  # the blanks before every line of this log, None while it has had none

    def feed(self, line: str) -> Record | None:
        """Take a line; return the message that is now known to be whole."""
        line = self._bare(line[:LINE].rstrip("\r\n"))
        if not line or line.isspace():
            return None
        if line[0] in " \t":
            self._go_on(line)
            return None
        record = self._record(line)
        if record is None:
            return None
        held, self._held = self._held, record
        return held

    def _bare(self, line: str) -> str:
        """Return a line without what a terminal, an editor, a mail or a paste has put around it."""
        if "\x1b" in line:
            line = COLOUR.sub("", line)
        line = line.lstrip("\ufeff")
        if line.startswith(">"):
            line = QUOTED.sub("", line, count=1)
        if self._margin is None and line and not line.isspace():
            rest = line.lstrip(" \t")
            # A log may also begin in the middle of a message: then its first line has no time.
            self._margin = line[: len(line) - len(rest)] if BEGINS.match(rest) else ""
        return line.removeprefix(self._margin or "")

    def end(self) -> Record | None:
        """Return the last message."""
        held, self._held = self._held, None
        return held

    def _go_on(self, line: str) -> None:
        held = self._held
        if held is not None and not self._is_raw and len(held.text) < TEXT:  # in raw kmsg it is a field beside the text
            self._held = held._replace(text=f"{held.text}\n{line.strip()}")
        elif held is None:
            self._held = self._made(Stamped(self._at, line, self._dating))

    def _record(self, line: str) -> Record | None:
        """Return the message that begins with this line; None for one that only continues, or for junk."""
        first = line[0]
        if first == "{":
            return self._journal(line)
        if first.isdigit():
            found = raw.parse(line)
            if found is not None:
                return self._raw(found)
        self._is_raw = False
        if first == "[":
            return self._bracketed(line)
        if first == "<" and (level := LEVEL.match(line)):
            # dmesg --raw, pstore and syslog's wire. Behind an uptime it is the kernel's message whatever the number says: relays
            # write their own facility there (SXid lines with <12> are on record). Without one the number decides.
            if level[2].startswith("["):
                return self._bracketed(level[2])
            made = self._plain(level[2])
            return made if int(level[1]) < 8 or made.program else made._replace(is_kernel=False)
        if decoded := DECODED.match(line):
            made = self._bracketed(decoded[2]) if decoded[2].startswith("[") else self._iso_first(decoded[2])
            return made._replace(is_kernel=decoded[1] == "kern", program="" if decoded[1] == "kern" else decoded[1])
        return self._plain(line)

    def _raw(self, found: raw.Raw) -> Record | None:
        self._is_raw = True
        held = self._held
        if found.continues and held is not None and held.is_kernel == found.is_kernel:
            self._held = held._replace(text=(held.text + found.text)[:TEXT], seq=found.seq)
            return None
        return self._made(self._up(found.stamp, found.text))._replace(seq=found.seq, first=found.seq, is_kernel=found.is_kernel)

    def _journal(self, line: str) -> Record | None:
        self._is_raw = False
        try:
            entry = JOURNAL.decode(line)
            at = int(entry.realtime) / 1e6 if isinstance(entry.realtime, str) else None
            text = text_of(entry.message)
        except (msgspec.DecodeError, ValueError, OverflowError):
            return None
        is_kernel = entry.transport == "kernel"
        program = entry.identifier if isinstance(entry.identifier, str) else ""
        return self._made(Stamped(self._certain(at), text.rstrip("\n")))._replace(
            is_kernel=is_kernel, program="" if is_kernel else program
        )

    def _bracketed(self, line: str) -> Record:
        if found := UPTIME.match(line):
            stamped = self._up(float(found[1]), found[2])
            tag = TAG.match(found[2])
            if tag is not None and tag[1] == "kernel":  # journalctl -o short-monotonic
                stamped = stamped._replace(text=tag[2])
            return self._made(stamped)
        if found := DELTA.match(line):
            return self._made(Stamped(self._at + float(found[1]), found[2], self._dating))
        if found := CALENDAR.match(line):
            return self._made(Stamped(self._stamps.dated(found[1], found[2], found[3], found[4]), found[5]))
        if found := FABRIC.match(line):
            stamped = Stamped(self._stamps.dated(found[1], found[2], found[4], found[3]), found[5])
            return self._made(stamped)._replace(is_kernel=False, program="fabricmanager")
        if found := MINUTE.match(line):
            return self._made(Stamped(self._stamps.dated(found[1], found[2], f"{found[3]}:00"), found[4]))
        return self._made(Stamped(self._at, line, self._dating))

    def _plain(self, line: str) -> Record:
        if found := SYSLOG.match(line):
            at = self._stamps.dated(found[1], found[2], found[3])
            return self._tagged(None if at is None else at + stamps.fraction(found[4]), found[5])
        if found := EPOCH.match(line):
            return self._tagged(self._certain(float(found[1])), found[2])
        if found := PROTOCOL.match(line):
            when = stamps.ISO.match(found[1])
            return self._of(self._certain(stamps.iso(when)) if when else None, found[2], (found[3] or "").lstrip(" "))
        return self._iso_first(line)

    def _iso_first(self, line: str) -> Record:
        start = WEEKDAY.match(line)
        found = stamps.ISO.match(line, start.end() if start else 0)
        if found is None:
            return self._made(Stamped(self._at, line, self._dating))
        rest = line[found.end() :].lstrip(" ")
        if start and not found[8]:  # a zone by its name (CET), which says nothing that can be relied on
            rest = rest.partition(" ")[2]
        # dmesg puts a comma before the microseconds and the message behind; syslog and journalctl a point, and host and program.
        if line[found.start() + 19 : found.start() + 20] == ",":
            return self._made(Stamped(self._certain(stamps.iso(found)), rest))
        at = self._certain(stamps.iso(found))
        if stream := STREAM.match(rest):
            rest = rest[stream.end() :]
        if under := UNDER.match(rest):
            rest = rest[under.end() :]
        # What a container prints is stamped by its runtime, without host and program.
        if under or (not HOSTED.match(rest) and (STARTS.match(rest) or DEVICE.match(rest))):
            return self._made(Stamped(at, rest))
        return self._tagged(at, rest)

    def _tagged(self, at: float | None, rest: str) -> Record:
        tag = TAG.match(rest)
        if tag is None:
            return self._made(Stamped(at, rest))._replace(is_kernel=False)
        return self._of(at, tag[1], tag[2])

    def _of(self, at: float | None, program: str, text: str) -> Record:
        """Return a message of the program that the line names."""
        if program != "kernel":
            return self._made(Stamped(at, text))._replace(is_kernel=False, program=program)
        times = 1
        if repeated := REPEATED.fullmatch(text):
            text, times = repeated[2], int(repeated[1])
        under = UNDER.match(text)
        text = text[under.end() :] if under else text
        if "#0" in text:
            text = OCTAL.sub(lambda found: chr(int(found[1], 8)), text)
        return self._made(Stamped(at, text))._replace(times=times)

    def _certain(self, at: float | None) -> float | None:
        """Return a time of which the year is certain; dates without one are near it."""
        if at is not None:
            self._stamps.knows(at)
        return at

    def _up(self, uptime: float, text: str) -> Stamped:
        return Stamped(uptime, text, Dating.BOOT) if self._booted is None else Stamped(self._booted + uptime, text)

    def _made(self, stamped: Stamped) -> Record:
        if stamped.at is not None:
            self._at, self._dating = stamped.at, stamped.dating
        return Record(self._at, stamped.text.strip(), True, stamp=self._at, dating=self._dating)


def is_of_log(line: str) -> bool:
    """Whether a line, taken by itself, is of a kernel log: it has a time, or begins as messages of the kernel do."""
    forms = Forms(0.0)
    forms.feed(line)
    record = forms.end()
    if record is None:
        return False
    return record.dating is not Dating.NONE or bool(STARTS.match(record.text) or DEVICE.match(record.text))

"""Text from a machine made safe to print: control and bidirectional characters become visible escapes."""

import unicodedata

UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def printable(text: str, limit: int = 200) -> str:
    """Return `text` with every control, format and surrogate character escaped, cut to `limit` characters."""
    escaped = "".join(ascii(char)[1:-1] if unicodedata.category(char) in UNPRINTABLE else char for char in text)
    return escaped if len(escaped) <= limit else escaped[: limit - 1] + "…"

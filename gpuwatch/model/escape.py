"""Text from a machine made safe to print: control and bidirectional characters become visible escapes."""

import unicodedata

UNPRINTABLE = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def printable(text: str, limit: int = 200) -> str:
    """Return `text` with every control, format and surrogate character escaped, cut to `limit` characters."""
    escaped = "".join(ascii(char)[1:-1] if unicodedata.category(char) in UNPRINTABLE else char for char in text)
    return escaped if len(escaped) <= limit else escaped[: limit - 1] + "…"


def visible(value: object) -> object:
    """Return plain data with every lone surrogate escaped."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {visible(key): visible(item) for key, item in value.items()}
    return [visible(item) for item in value] if isinstance(value, (list, tuple)) else value

"""What msgspec says of a value that does not fit, in words for people: in the configuration and in requests alike."""

import re

import msgspec

TYPES = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "an array",
    "object": "a table",
    "null": "nothing",
}
BOUNDS = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}
EXPECTED = re.compile(r"Expected `([^`]+)`(?: (>=|<=|>|<) (\S+))?(?:, got `([^`]+)`)?")
PLACE = re.compile(r" - at `\$\.?([^`]*)`$")
FIELD = re.compile(r"Object (?:contains unknown|missing required) field `([^`]*)`")
NO_JSON = "JSON is malformed: "


def expected(error: msgspec.ValidationError) -> str:
    """Return what was expected, without where and without the value."""
    text = PLACE.sub("", str(error))
    found = EXPECTED.match(text)
    if found is None:  # words of a number type of ours
        return text[:1].lower() + text[1:]
    kinds = [TYPES.get(kind, kind) for kind in found[1].split(" | ") if kind != "null"]
    bound = f" of {BOUNDS[found[2]]} {found[3]}" if found[2] else ""
    return f"expected {' or '.join(kinds)}{bound}"


def refusal(error: Exception) -> str:
    """Return why a request in JSON cannot be read: which key, what was expected and what kind of thing was found."""
    text = str(error)
    if not isinstance(error, msgspec.ValidationError):
        return f"expected JSON: {text.removeprefix(NO_JSON)}"
    place = PLACE.search(text)
    key = place[1] if place else ""
    if field := FIELD.match(text):
        what = "is not a known key" if "unknown" in field[0] else "is missing, and it is required"
        return f"{key}.{field[1]}: {what}" if key else f"{field[1]}: {what}"
    found = EXPECTED.match(text)
    kind = f", found {TYPES.get(found[4], found[4])}" if found and found[4] else ""
    return f"{key}: {expected(error)}{kind}" if key else f"{expected(error)}{kind}"

"""The Python module `pynvml`: found, checked and called. The one place that knows its traps.

Three packages fight for this name, and one of them is Python 2 (nicolargo/glances#1097): what is first on the path may
raise anything when it is imported, or lack what we need.
"""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Callable
from typing import Any

from gpuwatch.sources import sysfs

NEEDED = (
    "NVMLError",
    "nvmlInit",
    "nvmlShutdown",
    "nvmlDeviceGetCount",
    "nvmlDeviceGetHandleByIndex",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetPciInfo",
    "nvmlDeviceGetFieldValues",
    "nvmlMemory_v2",  # without it nvmlDeviceGetMemoryInfo takes no version, and asking for one is a TypeError
    "_nvmlGetFunctionPointer",  # a package that takes all from a part of its own leaves it behind
)


class BindingsError(Exception):
    """The module `pynvml` cannot be used; the text names its file."""


def load() -> Any:
    """Import pynvml; raises BindingsError naming the file that is in the way, and then the next call looks for it anew."""
    try:
        module = importlib.import_module("pynvml")
        lacking = [name for name in NEEDED if not hasattr(module, name)]
    except BaseException as error:  # noqa: BLE001 - a foreign file may raise anything at import: SyntaxError, SystemExit
        forget()
        if isinstance(error, ModuleNotFoundError) and error.name == "pynvml":
            raise BindingsError("the Python module pynvml is not installed (package nvidia-ml-py)") from None
        said = traceback.format_exception_only(error)[-1].strip()  # whatever its own text does
        raise BindingsError(f"{place()} cannot be imported: {said}") from None
    if lacking:
        forget()
        raise BindingsError(f"{place()} is not nvidia-ml-py, or is too old: it lacks {lacking[0]}")
    return module


def forget() -> None:
    """Have pynvml imported anew the next time: a module that lacks something would stay for good, and nobody could mend it."""
    for name in list(sys.modules):
        if name.partition(".")[0] == "pynvml":
            del sys.modules[name]
    importlib.invalidate_caches()


def place() -> str:
    """Return the file that answers to the name pynvml, for people. To be asked once the module itself is forgotten."""
    try:
        spec = importlib.util.find_spec("pynvml")
    except Exception:  # noqa: BLE001 - hooks of the import system are foreign too; this only adds to a description
        spec = None
    return str(spec.origin) if spec and spec.origin else "the module pynvml"


def text(function: Callable[..., Any], *arguments: Any) -> str:
    """Call a function that gives text, and return it safe to print; raises NVMLError.

    pynvml decodes strictly, so that a damaged board string raises UnicodeDecodeError; its bytes are in the error.
    """
    try:
        answer = function(*arguments)
    except UnicodeDecodeError as error:
        answer = error.object
    raw = answer if isinstance(answer, bytes) else str(answer).encode("utf-8", "surrogateescape")
    return sysfs.clean(raw)

"""Calls into NVML with every answer classified: the value, or one of four exceptions that say how far the damage goes."""

import threading
from collections.abc import Callable, Collection
from ctypes import byref
from typing import Any

from gpuwatch.catalogue.own import NVML_ERRORS
from gpuwatch.model.metric import Metric
from gpuwatch.sources.nvml import bindings, verdicts


class CallError(Exception):
    """This call answered with an error; others may answer."""

    def __init__(self, code: int) -> None:
        super().__init__(f"NVML answers {code}")
        self.code = code


class GpuGoneError(CallError):
    """The GPU is lost or needs a reset: its handle is not to be used again (XuehaiPan/nvitop#139)."""


class DriverGoneError(CallError):
    """NVML as a whole is no longer initialised, or no longer fits the driver."""


class Library:
    """pynvml behind calls that raise our exceptions, with a count of the errors. Used from all threads."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._error: type[Exception] = module.NVMLError
        self._lock = threading.Lock()
        counted = (code for code in NVML_ERRORS if int(code) not in verdicts.PERMANENT)
        self._errors = dict.fromkeys((NVML_ERRORS[code] for code in counted), 0.0)
        self.is_gone: Callable[[int], bool] = lambda _: True  # whether a process-wide code of one call speaks for NVML as a whole

    def find(self, name: str) -> Callable[..., Any] | None:
        """Return a function of pynvml, None where this version of it is older than the function."""
        function: Callable[..., Any] | None = getattr(self._module, name, None)
        return function

    def call(self, function: Callable[..., Any] | None, *arguments: Any) -> Any:
        """Call a function; raises CallError, GpuGoneError or DriverGoneError."""
        if function is None:
            raise CallError(verdicts.FUNCTION_NOT_FOUND)
        try:
            return function(*arguments)
        except self._error as error:
            raise self.classify(int(error.value)) from None  # type: ignore[attr-defined] # NVMLError has it

    def classify(self, code: int) -> CallError:
        """Count an error and return the exception for it."""
        metric = NVML_ERRORS.get(str(code))
        if metric in self._errors:
            with self._lock:
                self._errors[metric] += 1
        if code in verdicts.GONE:
            return GpuGoneError(code)
        return DriverGoneError(code) if code in verdicts.PROCESS_WIDE and self.is_gone(code) else CallError(code)

    def named(self, name: str, *arguments: Any) -> Any:
        """Call a function by its name."""
        return self.call(self.find(name), *arguments)

    def code(self, name: str) -> int:
        """Call a function without arguments as a witness; return its code, which is not counted (0: it works)."""
        function = self.find(name)
        try:
            if function is not None:
                function()
        except self._error as error:
            return int(error.value)  # type: ignore[attr-defined] # as in `call`
        return 0 if function is not None else verdicts.FUNCTION_NOT_FOUND

    def wait(self, event_set: Any, milliseconds: int) -> Any:
        """Wait for an event of a set; None where none came in time, which is no error and not counted as one."""
        function = self.find("nvmlEventSetWait")
        if function is None:
            raise CallError(verdicts.FUNCTION_NOT_FOUND)
        try:
            return function(event_set, milliseconds)
        except self._error as error:
            code = int(error.value)  # type: ignore[attr-defined] # as in `call`
            if code == verdicts.TIMEOUT:
                return None
            raise self.classify(code) from None

    def struct(self, name: str, version: str) -> Any:
        """Return a fresh struct of pynvml with its version word; raises CallError where this pynvml has none."""
        kind = getattr(self._module, name, None)
        word = getattr(self._module, version, None)
        if kind is None or word is None:
            raise CallError(verdicts.FUNCTION_NOT_FOUND)
        made = kind()
        made.version = word
        return made

    def filler(self, name: str, kind: str, version: str) -> Callable[[Any], Any] | None:
        """Return the function as one that answers with the struct it fills, None where this pynvml lacks either.

        `version` names pynvml's version word of that struct, "" for a struct without one.
        """
        function, struct = self.find(name), getattr(self._module, kind, None)
        word = getattr(self._module, version, None) if version else 0
        if function is None or struct is None or word is None:
            return None

        def fill(handle: Any) -> Any:
            made = struct()
            if version:
                made.version = word
            function(handle, byref(made))
            return made

        return fill

    def symbol(self, name: str, *arguments: Any) -> None:
        """Call a symbol of the library itself, where pynvml's function of that name leaves something out."""
        self.call(self._raw, name, *arguments)

    def attempt(self, name: str, *arguments: Any, allowed: Collection[int]) -> int:
        """Call a symbol of the library itself; returns 0 or one of the codes that are an answer. Others raise, as in `call`."""
        try:
            function = self._module._nvmlGetFunctionPointer(name)  # noqa: SLF001 - as below
        except self._error as error:
            raise self.classify(int(error.value)) from None  # type: ignore[attr-defined] # NVMLError has it
        code = int(function(*arguments))
        if code and code not in allowed:
            raise self.classify(code)
        return code

    def _raw(self, name: str, *arguments: Any) -> None:
        function = self._module._nvmlGetFunctionPointer(name)  # noqa: SLF001 - its only way to a symbol, unchanged for years
        self._module._nvmlCheckReturn(function(*arguments))  # noqa: SLF001 - as above

    def text(self, name: str, *arguments: Any) -> str:
        """Call a function that gives text; "" where the driver does not answer it."""
        function = self.find(name)
        try:
            return "" if function is None else str(self.call(bindings.text, function, *arguments))
        except (GpuGoneError, DriverGoneError):
            raise
        except CallError:
            return ""

    def errors(self) -> dict[Metric, float]:
        """Return the errors so far by code."""
        with self._lock:
            return dict(self._errors)

    def describe(self, code: int) -> str:
        """Return NVML's own words for a code."""
        return str(self._module.NVMLError(code))

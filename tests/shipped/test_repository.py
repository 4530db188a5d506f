"""What is installed for tests is used by tests and named, the map of the code is that of the code, and no file is too long."""

import inspect
import re
from importlib.metadata import packages_distributions
from pathlib import Path

from gpuwatch import toml
from gpuwatch.sampling.once import Once
from gpuwatch.sampling.schedule import Schedule

ROOT = Path(__file__).resolve().parents[2]
DEPENDENCIES = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LINES = 400  # of a file of Python


def sources(*folders: str, kinds: tuple[str, ...] = (".py",)) -> dict[Path, str]:
    """Return the text of each file of these kinds."""
    files = [path for folder in folders for path in sorted((ROOT / folder).rglob("*")) if path.suffix in kinds]
    return {path: path.read_text(encoding="utf-8") for path in files}


def group(name: str) -> list[str]:
    """Return the packages of a dependency group."""
    return [re.split(r"[<>=]", package)[0] for package in toml.read(ROOT / "pyproject.toml")["dependency-groups"][name]]


def test_every_package_for_tests_is_imported_by_one() -> None:
    modules: dict[str, list[str]] = {}
    for module, packages in packages_distributions().items():
        for package in packages:
            modules.setdefault(package.lower().replace("_", "-"), []).append(module)
    tests = "\n".join(sources("tests").values())
    libraries = [package for package in group("test") if not package.startswith("pytest")]  # pytest finds its own plugins
    assert len(libraries) > 2
    imported = {package: [name for name in modules.get(package, ()) if imports(tests, name)] for package in libraries}
    assert [package for package, names in imported.items() if not names] == []


def imports(text: str, module: str) -> bool:
    """Whether a module, or a part of it, is imported in this text."""
    return re.search(rf"^\s*(?:from|import) {re.escape(module)}\b", text, re.MULTILINE) is not None


def test_every_debian_package_for_tests_is_used_by_one_or_by_the_gate() -> None:
    needed = re.findall(r"^(?:PATH=\S+ )?need (\S+) \S+$", (ROOT / "tests" / "prepare").read_text(encoding="utf-8"), re.MULTILINE)
    gate = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    text = "\n".join([gate, *sources("tests", kinds=(".py", ".c", ".h")).values()])
    assert {"promtool", "gcc", "smartctl"} <= set(needed)
    assert [name for name in needed if not re.search(rf"\b{re.escape(Path(name).name)}[\"> ]", text)] == []


def test_the_documentation_names_the_packages_for_tests_and_checks_and_no_other() -> None:
    packages = [package for name in ("test", "check") for package in group(name) if not package.startswith("types-")]
    told = DEPENDENCIES.partition("For tests and checks only: ")[2]
    named = [re.sub(r" \(.*\)", "", words) for words in re.split(r",\s", told.partition(", and type stubs")[0])]
    assert sorted(named) == sorted(packages)


def test_no_file_is_too_long() -> None:
    long = {path.relative_to(ROOT): text.count("\n") for path, text in sources("gpuwatch", "tests").items()}
    assert len(long) > 300
    assert {path: lines for path, lines in long.items() if lines > LINES} == {}


def test_the_map_names_every_room_and_file_at_the_top_of_the_package() -> None:
    rooms = [path for path in (ROOT / "gpuwatch").iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    names = sorted(path.name if path.suffix else f"{path.name}/" for path in rooms if not path.name.startswith("__"))
    drawn = ARCHITECTURE.partition("gpuwatch/\n")[2].partition("```")[0]
    assert [name for name in names if not re.search(rf"(?:^  |; ){name}[ :]", drawn, re.MULTILINE)] == []


def test_the_order_of_the_rooms_is_that_which_is_checked() -> None:
    contracts = toml.read(ROOT / "pyproject.toml")["tool"]["importlinter"]["contracts"]
    (layers,) = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    assert f"\n{' > '.join(layers).replace('gpuwatch.', '')}\n" in ARCHITECTURE


def test_signatures_are_those_of_the_code() -> None:
    parameters = list(inspect.signature(Schedule.every).parameters.values())[1:]
    every = ", ".join(str(one.replace(annotation=one.empty)) for one in parameters)
    assert f"`every({every})`" in ARCHITECTURE
    assert f"-> Once({', '.join(Once.__struct_fields__)})`" in ARCHITECTURE


def test_every_thread_of_the_daemon_that_has_a_name_is_listed() -> None:
    workers = ("sources/nvml", "sources/worker.py", "sampling/once.py", "client.py")
    shipped = {path.relative_to(ROOT / "gpuwatch").as_posix(): text for path, text in sources("gpuwatch").items()}
    text = "\n".join(text for path, text in shipped.items() if not path.startswith(workers))
    names = re.findall(r"Thread\(.*?name=f?\"([\w-]+)", text)
    listed = ARCHITECTURE.partition("## Processes and threads")[2].partition("## Tests")[0]
    assert {"judge", "notify", "release", "http", "store-writer"} <= set(names)
    assert [name for name in names if f"`{name}" not in listed] == []

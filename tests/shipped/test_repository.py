"""What is installed for tests is used by tests and named in docs/dependencies.md, and no file is too long to be read."""

import re
from importlib.metadata import packages_distributions
from pathlib import Path

from gpuwatch import toml

ROOT = Path(__file__).resolve().parents[2]
DEPENDENCIES = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
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

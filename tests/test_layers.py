"""The rooms of the house: imports point one way only, also those inside of functions."""

import ast
import re
from pathlib import Path

import pytest

import margmap

ROOT = Path(margmap.__file__).parent

#: Each room may use itself and those before it. What stands alone at the top level is a room of its own.
ROOMS = (
    "errors",
    "foundation",
    "circuit",
    "network",
    "interop",
    "io",
    "inference",
    "distribute",
    "solve",
    "certificate",
    "learn",
    "plot",
    "demo",
    "warmup",
    "bench",
    "explore",
    "cli",
    "__main__",
)

FILES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def room_of(module: str) -> str:
    """The room of ``margmap.room.file``; the package itself is in none."""
    return module.split(".")[1] if "." in module else ""


def imports(tree: ast.AST) -> list[tuple[int, str]]:
    """Line and module of every import of the package, but for those that only type checkers see."""
    found = []
    todo = [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            todo += node.orelse
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "margmap":
            found += [(node.lineno, f"{node.module}.{alias.name}") for alias in node.names]
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names if alias.name.split(".")[0] == "margmap"]
        todo += ast.iter_child_nodes(node)
    return found


def test_every_room_is_known():
    known = {path.parts[0].removesuffix(".py") for path in FILES} - {"__init__", "models"}
    assert known == set(ROOMS)


@pytest.mark.parametrize("path", [path for path in FILES if path.parts[0] != "__init__.py"], ids=str)
def test_no_import_goes_back(path):
    here = ROOMS.index(path.parts[0].removesuffix(".py"))
    for line, module in imports(ast.parse((ROOT / path).read_text())):
        room = room_of(module)
        if room in ROOMS:
            assert ROOMS.index(room) <= here, f"{path}:{line} imports {module}, which is above it"


@pytest.mark.parametrize(("folder", "other"), [("tests", "benchmarks"), ("benchmarks", "tests")])
def test_tests_and_benchmarks_are_strangers(folder, other):
    """What both need, such as the random circuits of ``margmap.bench.generators``, is part of the package."""
    top = Path(__file__).parents[1]
    foreign = {path.stem for path in (top / other).rglob("*.py")} - {path.stem for path in (top / folder).rglob("*.py")}
    assert foreign
    for path in (top / folder).rglob("*.py"):
        for line in re.findall(r"^\s*(?:import|from) (.+)$", path.read_text(), re.MULTILINE):
            assert not foreign & set(re.findall(r"[\w.]+", line.partition(" import ")[0])), f"{path}: {line}"


def test_an_import_inside_of_a_function_is_seen():
    tree = ast.parse("if TYPE_CHECKING:\n    import margmap.cli\ndef f():\n    from margmap.solve import reduce\n")
    assert imports(tree) == [(4, "margmap.solve.reduce")]

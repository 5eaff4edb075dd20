"""No file can make margmap run code: nothing in the package evaluates, unpickles or starts a shell."""

from __future__ import annotations

import ast
from collections.abc import Set
from pathlib import Path

import pytest

import margmap

SOURCES = sorted(Path(margmap.__file__).parent.rglob("*.py"))
# These send their own work to their own worker processes, as every executor of concurrent.futures does anyway.
BETWEEN_PROCESSES = {"executors.py", "batch.py", "share_query.py", "imputation.py", "warmup.py"}

FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "execfile", "input"}
FORBIDDEN_MODULES = {
    "pickle",
    "cPickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "yaml",
    "code",
}
FORBIDDEN_ATTRIBUTES = {
    *("numpy.load", "np.load", "np.fromregex", "np.genfromtxt", "pandas.read_pickle", "pd.read_pickle", "pd.eval"),
    *(
        "pickle.load",
        "pickle.Unpickler",
        "os.system",
        "os.popen",
        "os.execv",
        "subprocess.getoutput",
        "importlib.reload",
    ),
}


def trouble(tree: ast.AST, modules: Set[str] = FORBIDDEN_MODULES) -> list[str]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in FORBIDDEN_CALLS:
            # margmap.network.compile.compile makes circuits.
            if not (node.func.id == "compile" and _imported(tree, "compile")):
                found.append(f"line {node.lineno}: {node.func.id}()")
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in FORBIDDEN_ATTRIBUTES:
            found.append(f"line {node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.keyword) and node.arg in ("allow_pickle", "shell"):
            found.append(f"line {node.value.lineno}: {node.arg}=")
        elif isinstance(node, ast.Import | ast.ImportFrom):
            module = node.module if isinstance(node, ast.ImportFrom) else None
            names = [module] if module else [alias.name for alias in node.names]
            found += [f"line {node.lineno}: {name}" for name in names if name.split(".")[0] in modules]
    return found


def _imported(tree: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.ImportFrom) and any((alias.asname or alias.name) == name for alias in node.names)
        for node in ast.walk(tree)
    ) or any(isinstance(node, ast.FunctionDef) and node.name == name for node in ast.walk(tree))


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.stem)
def test_nothing_that_runs_code(path: Path) -> None:
    modules = FORBIDDEN_MODULES - {"pickle"} if path.name in BETWEEN_PROCESSES else FORBIDDEN_MODULES
    assert trouble(ast.parse(path.read_text(encoding="utf-8")), modules) == []


@pytest.mark.parametrize(
    "text",
    [
        *(
            "eval('1')",
            "exec(x)",
            "import pickle",
            "from pickle import loads",
            "np.load(path)",
            "os.system('ls')",
            "pickle.load(file)",
        ),
        *("f(x, allow_pickle=True)", "run(x, shell=True)", "compile(x, 'a', 'eval')", "__import__(x)"),
    ],
)
def test_the_search_finds_it(text: str) -> None:
    assert trouble(ast.parse(text))


def test_modules_by_name_come_from_tables_only() -> None:
    """``import_module`` with a name from a file would run any module; every use takes it from a table of ours."""
    for path in SOURCES:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
                given = ast.unparse(node.args[0])
                ours = given.startswith(("f'margmap.", "'margmap.", "f'matplotlib.", "'matplotlib")) or given.split(
                    "["
                )[0] in (
                    "LIBRARIES",
                    "self.home",  # of a Method, declared in solve/methods
                    "_MODULE",
                    "_SUBMODULES",
                )
                assert ours, f"{path}: import_module({given})"

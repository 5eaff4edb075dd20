"""What ``import margmap`` does and does not do."""

import importlib.metadata
import json
import subprocess
import sys

import pytest

import margmap

HEAVY = ("numba", "numpy", "scipy", "rich", "typer", "matplotlib")


def in_a_fresh_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_loads_nothing_heavy():
    loaded = json.loads(in_a_fresh_python("import json, sys, margmap; print(json.dumps(sorted(sys.modules)))"))
    assert "margmap" in loaded
    assert [name for name in loaded if name.split(".")[0] in HEAVY] == []


def test_using_the_package_needs_no_optional_dependency():
    code = "import sys, margmap; margmap.Circuit, margmap.marginal_map; print('matplotlib' in sys.modules)"
    assert in_a_fresh_python(code).strip() == "False"


@pytest.mark.parametrize("name", margmap.__all__)
def test_public_names_resolve(name):
    assert getattr(margmap, name).__name__ == name
    assert name in dir(margmap)


def test_unknown_name():
    with pytest.raises(AttributeError, match="no attribute 'marginal_mapp'"):
        _ = margmap.marginal_mapp


def test_version_is_that_of_the_installed_package():
    assert margmap.__version__ == importlib.metadata.version("margmap")


def test_errors_have_one_root():
    for name in margmap.__all__:
        if name.endswith("Error"):
            assert issubclass(getattr(margmap, name), margmap.MargmapError)
    assert issubclass(margmap.ImpossibleEvidenceError, margmap.QueryError)

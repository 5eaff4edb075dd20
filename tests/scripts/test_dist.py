"""What a release says about itself agrees: versions, extras, Pythons."""

import importlib.metadata
import json
import re
import sys
from pathlib import Path

import margmap as mm

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
import dist
import measure_coverage

ROOT = dist.ROOT


def test_the_version_stands_in_one_place_and_is_repeated_rightly():
    assert dist.version() == mm.__version__
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text()
    assert re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)[1] == mm.__version__
    recipe = (ROOT / "packaging" / "conda" / "meta.yaml").read_text()
    assert re.search(r'set version = "([^"]+)"', recipe)[1] == mm.__version__
    assert f"## [{mm.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_every_extra_has_a_smoke_test():
    assert set(dist.extras()) <= dist.SMOKE.keys()
    assert {"plot", "learn", "cluster"} <= set(dist.extras())


def test_every_action_is_pinned_by_commit_and_no_job_may_write_by_default():
    files = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
    assert len(files) >= 4
    for path in files:
        text = path.read_text()
        assert "\npermissions:\n  contents: read\n" in text
        for used in re.findall(r"uses: (\S+)(.*)", text):
            assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", used[0]), f"{path.name}: {used[0]}"
            assert re.match(r" # v\d", used[1]), f"{path.name}: {used[0]} has no release beside it"


def test_the_conda_recipe_and_the_oldest_dependencies_are_those_of_the_package():
    project = (ROOT / "pyproject.toml").read_text()
    needed = project.split("\ndependencies = [")[1].split("\n]")[0]
    floors = dict(re.findall(r'"([a-z-]+)>=([\d.]+)"', needed))
    assert {"numpy", "rich", "typer"} <= floors.keys()
    recipe = (ROOT / "packaging" / "conda" / "meta.yaml").read_text()
    for name, floor in floors.items():
        assert f"- {name} >={floor}" in recipe, name


def test_the_oldest_dependencies_are_the_floors_of_all_that_tests_import():
    project = (ROOT / "pyproject.toml").read_text()
    floors = dict(re.findall(r'"([a-z0-9-]+)>=([\d.]+)[";]', project.split("[project]")[1].split("[project.urls]")[0]))
    # The tools of developers, and pgmpy, which the real libraries' environments have, are not held at their floors.
    tools = {"pgmpy", "mkdocs-material", "latex2mathml", "ruff", "mypy", "pre-commit"}
    oldest = (ROOT / "packaging" / "requirements" / "oldest.txt").read_text()
    held = dict(re.findall(r"^([a-z0-9-]+)==([\d.]+)$", oldest, re.MULTILINE))
    assert len(floors.keys() - tools) >= 12
    for name in floors.keys() - tools:
        assert re.fullmatch(rf"{re.escape(floors[name])}(\.0)*", held.get(name, "not there")), name


def test_pythons_are_the_same_in_metadata_nox_and_workflow():
    said = importlib.metadata.metadata("margmap")
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(said.get_all("Classifier")))
    assert pythons[0] == said["Requires-Python"].removeprefix(">=")
    asked = re.search(r"^PYTHONS = \[(.*)\]$", (ROOT / "noxfile.py").read_text(), re.MULTILINE)[1]
    matrix = re.search(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "test.yml").read_text())[1]
    assert asked == matrix
    # Nobody has run 3.14 yet, so the package does not say that it works there; docs/releasing.md does say why.
    assert re.findall(r"3\.\d+", asked) == [*pythons, "3.14"]
    ran = (ROOT / "docs" / "releasing.md").read_text()
    assert "Python 3.14" in ran.split("## What was not run")[1]
    for python in pythons:
        assert re.search(rf"^\| {re.escape(python)}\.\d+ ", ran, re.MULTILINE), f"docs/releasing.md: no run on {python}"


def test_the_metadata_names_addresses_license_and_types():
    said = importlib.metadata.metadata("margmap")
    assert all(re.fullmatch(r"[A-Z]\w+, https://\S+", address) for address in said.get_all("Project-URL"))
    assert said["License-Expression"] == "Apache-2.0"
    assert "Typing :: Typed" in said.get_all("Classifier")
    assert (Path(mm.__file__).parent / "py.typed").exists()
    assert set(dist.extras()) | dist.NOT_FOR_USERS == set(said.get_all("Provides-Extra"))


def test_the_quoted_coverage_is_the_measured_one():
    if measure_coverage.RECORD.exists():
        percent = json.loads(measure_coverage.RECORD.read_text())["percent"]
        assert measure_coverage.quoted() == f"{percent} %"
        assert f"![coverage: {percent} %](docs/assets/coverage.svg)" in measure_coverage.README.read_text()
        assert measure_coverage.PLATE.read_text() == measure_coverage.plate("coverage", f"{percent} %")
        assert percent >= measure_coverage.FLOOR
    else:
        assert measure_coverage.quoted() == "not measured yet"


def test_a_measured_coverage_is_kept_and_quoted(tmp_path, monkeypatch):
    monkeypatch.setattr(measure_coverage, "RECORD", tmp_path / "coverage.json")
    monkeypatch.setattr(measure_coverage, "PLATE", tmp_path / "coverage.svg")
    for name in ("PAGE", "README"):
        (tmp_path / name).write_text(getattr(measure_coverage, name).read_text())
        monkeypatch.setattr(measure_coverage, name, tmp_path / name)
    for percent in (93.4, 95.0):
        measure_coverage.keep({"percent": percent, "rooms": {}})
        assert measure_coverage.quoted() == f"{percent} %"
        assert json.loads((tmp_path / "coverage.json").read_text())["percent"] == percent
        assert f"![coverage: {percent} %]" in (tmp_path / "README").read_text()
        assert f"<title>coverage: {percent} %</title>" in (tmp_path / "coverage.svg").read_text()


def test_shares_of_rooms_count_lines_and_branches():
    def counted(*numbers):
        return {"summary": dict(zip(measure_coverage.COUNTS, numbers, strict=True))}

    files = {
        "/a/margmap/io/uai.py": counted(8, 10, 1, 4),
        "src/margmap/io/bif.py": counted(5, 5, 0, 1),
        "src/margmap/errors.py": counted(3, 3, 0, 0),
    }
    assert measure_coverage.rooms(files) == {"(top)": 100.0, "io": 70.0}
    assert measure_coverage.share_of([counted(999, 1000, 999, 1001)["summary"]]) == 99.8

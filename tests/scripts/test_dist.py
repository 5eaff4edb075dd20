"""What a release says about itself agrees: versions, extras, Pythons."""

import re
import sys
from pathlib import Path

import margmap as mm

sys.path.append(str(Path(__file__).resolve().parents[2] / "scripts"))
import dist

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
    oldest = (ROOT / "packaging" / "requirements" / "oldest.txt").read_text()
    for name, floor in floors.items():
        assert f"- {name} >={floor}" in recipe, name
        assert re.search(rf"^{name}=={re.escape(floor)}(\.0)*$", oldest, re.MULTILINE), name

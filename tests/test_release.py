"""Files of a release agree with setup.py, the Makefile and each other, and name nothing that is not there."""

from __future__ import annotations

import json
import re
from email import message_from_string

import pytest
import yaml
from support.cases import check_each
from support.cli import python
from support.shared import ROOT

import kmip_data

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
NEVER_RUN = [*WORKFLOWS, ROOT / "Dockerfile", ROOT / "conda" / "recipe.yaml"]
#: Conda's names, where they differ from setup.py's.
CONDA = {"torch": "pytorch", "torch-geometric": "pytorch_geometric", "osmium": "pyosmium"}
CONDA |= {"matplotlib": "matplotlib-base", "isal": "python-isal"}
#: Keys of the Citation File Format 1.2.0, of the file and of a reference in it.
CFF = {
    "cff-version",
    "message",
    "title",
    "abstract",
    "type",
    "version",
    "license",
    "keywords",
    "authors",
}
CFF |= {"preferred-citation", "repository-code", "doi", "date-released"}
REFERENCE = {"type", "title", "year", "month", "url", "authors", "identifiers", "doi", "journal"}
#: Hosts of package registries, in two parts.
HOSTS = [
    ".".join(parts) for parts in (("pypi", "org"), ("pythonhosted", "org"), ("anaconda", "org"))
]
HOSTS += ["download.pytorch" + ".org", "conda" + ".io"]


def load(name: str) -> dict:
    text = (ROOT / name).read_text("utf-8")
    return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)


@pytest.fixture(scope="module")
def metadata():
    """Metadata that setup.py gives to a package index."""
    code = "import sys, setuptools; from distutils.core import run_setup; "
    code += "run_setup('setup.py', stop_after='init').metadata.write_pkg_file(sys.stdout)"
    return message_from_string(python("-c", code).out)


def test_actions_are_pinned_by_commit_and_leave_no_credentials():
    """``zizmor`` of the workflows finds nothing high or medium while this holds."""
    for file in WORKFLOWS:
        for line in re.findall(r"uses: (.+)", file.read_text("utf-8")):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line), (file.name, line)
        for job in yaml.safe_load(file.read_text("utf-8"))["jobs"].values():
            for step in job["steps"]:
                if step.get("uses", "").startswith("actions/checkout@"):
                    assert step["with"]["persist-credentials"] is False, file.name


def test_version_names_and_words_equal_setup(metadata):
    cff, zenodo, recipe = load("CITATION.cff"), load(".zenodo.json"), load("conda/recipe.yaml")
    version = kmip_data.__version__
    assert metadata["Version"] == version
    assert {cff["version"], zenodo["version"], recipe["context"]["version"]} == {version}
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert {cff["title"], zenodo["title"], recipe["package"]["name"]} == {metadata["Name"]}
    assert {cff["abstract"], zenodo["description"], recipe["about"]["summary"]} == {
        metadata["Summary"]
    }
    licenses = {cff["license"], zenodo["license"], recipe["about"]["license"]}
    assert licenses == {metadata["License-Expression"]}
    assert cff["keywords"] == zenodo["keywords"] == metadata["Keywords"].split(",")
    assert [each["name"] for each in (*cff["authors"], *zenodo["creators"])] == [
        metadata["Author"]
    ] * 2


def test_project_urls_are_one_constant(metadata):
    text = (ROOT / "setup.py").read_text("utf-8")
    (constant,) = re.findall(r'^PROJECT = "(.+)"', text, re.MULTILINE)
    urls = [line.split(", ")[1] for line in metadata.get_all("Project-URL")]
    assert urls
    assert all(url.startswith(constant) for url in urls)
    # A placeholder is cited by nobody; once there is an address, the citation has it.
    cited = None if constant.startswith("https://example.") else constant
    assert load("CITATION.cff").get("repository-code") == cited


def test_citation_is_valid_and_has_the_paper():
    cff = load("CITATION.cff")
    assert cff["cff-version"] == "1.2.0"
    assert {"message", "title", "authors"} <= set(cff) <= CFF
    paper = cff["preferred-citation"]
    assert {"type", "title", "authors"} <= set(paper) <= REFERENCE
    assert paper["title"] in (ROOT / "README.md").read_text("utf-8")
    assert paper["url"] in (ROOT / "README.md").read_text("utf-8")
    assert [each["family-names"].split()[-1] for each in paper["authors"]] == [
        "Schouwer",
        "Borde",
        "Dong",
    ]
    number = paper["url"].rpartition("/")[2]
    others = [each["identifier"] for each in load(".zenodo.json")["related_identifiers"]]
    assert {each["value"] for each in paper["identifiers"]} == set(others) == {f"arXiv:{number}"}


def test_classifiers_list_only_tested_platforms(metadata):
    """Every Python with a classifier is in the table of tested versions, not as untested."""
    table = (
        (ROOT / "docs" / "install.md")
        .read_text("utf-8")
        .split("## Tested versions")[1]
        .split("##")[0]
    )
    rows = [
        line for line in table.splitlines() if line.startswith("| 3") and "untested" not in line
    ]
    run = {version for row in rows for version in re.findall(r"3\.\d\d", row.split("|")[1])}
    classified = re.findall(r"Python :: (3\.\d+)", "\n".join(metadata.get_all("Classifier")))
    assert set(classified) == run
    assert not [line for line in metadata.get_all("Classifier") if line.startswith("License")]


def test_conda_requirements_equal_setup(metadata):
    needed = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    pairs = [re.fullmatch(r"([\w-]+)(>=.+)", line).groups() for line in needed]
    wanted = {f"{CONDA.get(name, name)} {least}" for name, least in pairs}
    run = load("conda/recipe.yaml")["requirements"]["run"]
    assert set(run) == wanted | {f"python {metadata['Requires-Python']}"}


def test_the_map_of_the_demo_is_an_extra_that_make_demo_has(metadata):
    lines = [line for line in metadata.get_all("Requires-Dist") if line.startswith("pyrosm")]
    assert lines == [f'pyrosm>=0.25; extra == "{extra}"' for extra in ("demo", "dev", "all")]
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert "demo: $(STAMP)" in makefile
    assert "-e '.[dev]'" in makefile


def test_untested_files_are_labelled_and_name_existing_paths():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

    def check(path):
        text = path.read_text("utf-8")
        assert text.startswith("# Never ")
        assert set(re.findall(r"\bmake ([a-z-]+)", text)) <= targets
        for line in re.findall(r"^COPY (?!--from)(.+)", text, re.MULTILINE):
            assert [name for name in line.split()[:-1] if not (ROOT / name).exists()] == []
        if path in WORKFLOWS:
            flow = yaml.safe_load(text)
            assert flow["permissions"] == {"contents": "read"}
            assert all(job["runs-on"] and job["steps"] for job in flow["jobs"].values())
            assert set(re.findall(r"-c (\S+)", text)) <= {"constraints.txt"}

    check_each(check, NEVER_RUN)
    names = [path.stem for path in WORKFLOWS]
    assert names == ["docs", "lint", "mirrors", "pin", "release", "tests"]
    # What the two workflows of raw files start.
    for name in ("mirrors", "pin"):
        text = (ROOT / f".github/workflows/{name}.yml").read_text("utf-8")
        started = re.findall(r"\.venv/bin/python (tools/\S+\.py) (\w+)", text)
        assert [(ROOT / script).is_file() for script, _ in started] == [True]
    matrix = load(".github/workflows/tests.yml")["jobs"]["tests"]["strategy"]["matrix"]["python"]
    assert f"PYTHONS ?= {' '.join(matrix)}\n" in (ROOT / "Makefile").read_text("utf-8")


def test_issue_forms_have_the_required_fields():
    def check(path):
        form = yaml.safe_load(path.read_text("utf-8"))
        assert {"name", "description", "body"} <= set(form)
        assert all(
            item["type"] == "textarea" and item["attributes"]["label"] for item in form["body"]
        )

    check_each(check, [path for path in FORMS if path.stem != "config"])


def test_no_file_names_the_host_of_a_registry():
    kinds = {".md", ".py", ".toml", ".txt", ".yml", ".yaml", ".cff", ".json", ".in", ""}
    folders = (
        "docs",
        "kmip_data",
        "pipelines",
        "models",
        "cli",
        "manifests",
        ".github",
        "conda",
        ".ci",
    )
    paths = [path for name in folders for path in (ROOT / name).rglob("*")] + list(ROOT.iterdir())
    files = [
        path for path in paths if path.is_file() and path.suffix in kinds and path.name != ".git"
    ]
    assert len(files) > 400
    named = {
        path: [host for host in HOSTS if host in path.read_text("utf-8", "ignore")]
        for path in files
    }
    assert {path: hosts for path, hosts in named.items() if hosts} == {}

"""Every command and snippet of README.md runs, in its order, on small real archives."""

from __future__ import annotations

import re
import shlex

import pytest
import torch
from support.cases import check_each
from support.cli import expect_success
from support.shared import ROOT, shared_data

from kmip_data import manifest as manifests
from kmip_data.manifest import load_manifest
from kmip_data.models.training import self_check

README = (ROOT / "README.md").read_text("utf-8")
S3DIS_ZIP = "indoor3d_sem_seg_hdf5_data_small.zip"

NOT_RUN = {
    "make venv": "made the environment of this test",
    "make demo": "run by the tests of the demo command",
    "make test": "runs this test",
    "source .venv/bin/activate": "of the reader's shell",
    "python -m pip install -c constraints.txt .": "the tests of the wheel install it",
    "python -m pip install -c constraints.txt '.[gpu,cuda]'": "needs a GPU",
}
#: Paths of the reader's own in README.md, and the files that the tests use instead.
STAND_INS = {"~/Downloads/indoor3d_sem_seg_hdf5_data.zip": S3DIS_ZIP}
#: Shorter, but the same command.
SHORTER = {
    "train": [
        *("--epochs", "1", "--device", "cpu", "--set", "model.parameter_budget=none"),
        *("--set", "model.layers=1", "--set", "model.hidden_dim=16"),
    ],
    "build": ["--jobs", "2"],
}


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


#: A file that README.md has the reader paste: name and text.
HERE_DOCUMENT = re.compile(r"^cat > (\S+) <<'EOF'\n(.*?)^EOF\n", re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    lines = HERE_DOCUMENT.sub("", "".join(blocks("bash"))).splitlines()
    return [command for line in lines if (command := line.split("  #")[0].strip())]


@pytest.fixture(scope="module")
def raw(tmp_path_factory):
    """A home of its own, in which the raw files of S3DIS lie: what a download would leave.

    They are a cut of the published files, so the manifest has no pins here.
    """
    shipped = manifests.read_shipped

    def read(folder, name):
        values = shipped(folder, name)
        if folder == "datasets/s3dis":
            values["content"] |= {"known_sha256": {}, "known_md5": {}}
        return values

    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifests, "read_shipped", read)
        load_manifest.cache_clear()
        expect_success(
            "build", "s3dis", "--archive", shared_data(S3DIS_ZIP), "--k", "4", "--home", folder
        )
        yield folder
    load_manifest.cache_clear()


@pytest.fixture
def home(raw, monkeypatch):
    monkeypatch.setenv("KMIP_DATA_HOME", str(raw))
    return raw


def test_every_command_is_run_or_has_a_reason():
    for command in commands():
        words = shlex.split(command)
        assert words[0] == "kmip-data" or command in NOT_RUN, command
    assert set(NOT_RUN) <= set(commands()), "reasons for commands that are gone"
    for path in STAND_INS:
        assert path in README


def test_make_targets_exist():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    text = README + (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    for target in set(re.findall(r"^ *make ([a-z]+)|`make ([a-z]+)", text, re.MULTILINE)):
        assert re.search(rf"^{''.join(target)}:", makefile, re.MULTILINE), target


@pytest.mark.slow
def test_commands_of_the_readme_run(home, tmp_path, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda address: None)
    monkeypatch.setattr(
        self_check, "check_gpu_features", lambda *_: {}
    )  # tests of doctor try each search
    monkeypatch.chdir(tmp_path)
    for name, text in HERE_DOCUMENT.findall(README):
        (tmp_path / name).write_text(text)
    ran = 0
    for command in commands():
        words = shlex.split(command)
        if words[0] != "kmip-data":
            continue
        args = [
            str(shared_data(STAND_INS[word])) if word in STAND_INS else word for word in words[1:]
        ]
        args = [
            str(tmp_path / "share") if word.startswith("hf://") else word for word in args
        ]  # no network
        expect_success(*args, *SHORTER.get(args[0], []))
        ran += 1
    assert ran >= 8


def test_library_snippet_runs(home):
    library, _ = blocks("python")
    names: dict[str, object] = {}
    exec(library, names)
    assert str(names["batch"]).startswith("DataBatch(")


def test_attention_snippet_runs():
    _, snippet = blocks("python")
    names: dict[str, object] = {}
    exec(snippet, names)
    x, edge_index = torch.randn(30, 64), torch.randint(0, 30, (2, 90))
    assert names["conv"](x, edge_index).shape == (30, 64)


def test_links_lead_somewhere():
    def check(page):
        text = (ROOT / page).read_text("utf-8")
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", text):
            if not target.startswith(("http://", "https://")):
                assert ((ROOT / page).parent / target).exists(), f"{page} links to {target}"

    pages = [p.relative_to(ROOT).as_posix() for p in (ROOT / "docs").rglob("*.md")]
    check_each(check, ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", *pages])


def test_docs_index_names_every_page():
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    for path in (ROOT / "docs").glob("*.md"):
        assert path.name == "README.md" or f"({path.name})" in index, path.name
    records = (ROOT / "docs" / "adr" / "README.md").read_text("utf-8")
    for path in (ROOT / "docs" / "adr").glob("*.md"):
        assert path.name == "README.md" or f"({path.name})" in records, path.name


def above_the_fold() -> str:
    """Text of README.md before its reference, without pictures, code and addresses of links."""
    text = README.partition("\n---\n")[0]
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"!\[[^]]*\]\([^)]*\)|\]\([^)]*\)", "", text)


def test_first_pages_are_short():
    text = above_the_fold()
    assert len(text.split()) <= 500
    prose = re.sub(r"^(#|\|).*$", ".", text, flags=re.MULTILINE)
    for sentence in re.split(r"[.:;?](?:\s|$)|\n\n|\n- ", prose):
        assert len(sentence.split()) <= 25, sentence

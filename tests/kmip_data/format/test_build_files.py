"""The last files of a build: its page, and Croissant metadata, valid to their own validator."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import h5py
import pytest
from support.builds.toy_pipeline import build_toy, write_raw

from kmip_data.builds.home import Build
from kmip_data.builds.verify import verify_build
from kmip_data.files.atomic_writes import write_output
from kmip_data.files.folder_marker import PICTURE_NAME
from kmip_data.format.build_files import CROISSANT_NAME, write_card
from kmip_data.format.card import Card, read_card
from kmip_data.format.card_page import render_card
from kmip_data.format.croissant import build_croissant, citation_authors
from kmip_data.manifest import dataset_names, load_manifest


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """A toy build."""
    folder = tmp_path_factory.mktemp("page")
    write_raw(folder / "raw", 20)
    return build_toy(folder, jobs=1, quiet=True)


def test_the_page_describes_the_build(build: Build) -> None:
    page = (build.path / "README.md").read_text()
    assert page == render_card(read_card(build.path))
    for text in (
        "# Toy rings",
        "| graphs | 20 |",
        "| raw files | complete by counts, bytes not pinned |",
        build.card.key,
        "| `x` | `node/x` | float32 | N×2 |",
        "**graph-fold0** (default)",
        "| train | 16 | 104 | 208 |",
        "| 0 | red | 37 (28.46%) |",
        "CC0<br>https://example.com",
        "@misc{toy}",
        "part0.txt",
        build.card.content_digest,
        "numpy",
    ):
        assert text in page, text


HOSTILE = "</script><script>alert(1)</script> <img src=x> [a](javascript:alert(1)) `b` *c* |d| \x1b[2J\u202e\n# e"


PICTURE = "![Picture, drawn by kmip-data preview](preview.png)"


def test_markup_in_a_card_is_not_rendered(build: Build) -> None:
    """Names come from archives and from strangers: the page shows them, and does nothing else."""
    values = build.card.model_dump()
    split = {
        **values["splits"][build.card.default_split],
        "note": HOSTILE,
        "rule": HOSTILE,
        "parameters": {},
    }
    receipt = {**values["receipts"][0], "name": HOSTILE, "origin": HOSTILE}
    files = {"ignored": [HOSTILE], HOSTILE: HOSTILE, "missing": [1, {HOSTILE: None}], "rows": None}
    hostile = {
        "title": HOSTILE,
        "statistics": {"files": files, "skipped": [(HOSTILE, HOSTILE)]},
        "notes": [HOSTILE],
        "class_names": [HOSTILE] * len(values["class_names"]),
        "citation": f"{HOSTILE}\n```\n<script>",
        "license": {"name": HOSTILE, "url": "javascript:alert(1)", "notice": HOSTILE},
        "receipts": [receipt],
        "versions": {HOSTILE: HOSTILE},
        "parameters": {"place": HOSTILE},
        "splits": {build.card.default_split: split},
    }
    for key, value in hostile.items():
        page = render_card(Card.model_validate({**values, key: value}))
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", page), key
        shown = markdown(page.replace(PICTURE, "", 1))
        assert not re.search("<script|<img|<em>|href=.javascript", shown), key
        assert shown.count("<h1>") == 1, key
        assert "&lt;script&gt;alert(1)" in shown, key


def markdown(page: str) -> str:
    """The page as a reader of GitHub's Markdown shows it."""
    from markdown_it import MarkdownIt

    return str(MarkdownIt("commonmark", {"html": True}).enable("table").render(page))


def test_the_page_begins_with_an_existing_picture(build: Build) -> None:
    assert "preview.png" not in render_card(build.card)
    write_output(build.path / PICTURE_NAME, b"picture")
    write_card(build.path, build.card)
    assert f"]({PICTURE_NAME})" in (build.path / "README.md").read_text()
    report = verify_build(build.path)
    assert report.ok
    assert not report.outdated
    (build.path / PICTURE_NAME).unlink()
    write_card(build.path, build.card)
    assert PICTURE_NAME not in (build.path / "README.md").read_text()


def test_pages_label_samples_and_incomplete_builds(build: Build) -> None:
    values = build.card.model_dump()
    sample = Card.model_validate(
        {**values, "sample": True, "complete": False, "class_names": [], "notes": []}
    )
    page = render_card(sample)
    assert page.startswith("# Toy rings (sample: generated, not the real data)\n")
    bracketed = sample.model_copy(update={"title": "Toy rings (small)"})
    assert bracketed.heading == "Toy rings (small; sample: generated, not the real data)"
    assert (sample.credit, build.card.credit) == ("", build.card.license["notice"])
    assert "| 0 | 0 | 37 (28.46%) |" in page  # classes without names
    for column in values["data_schema"]["columns"]:
        if column["attribute"] == "y":
            column.update(shape=[3], fields=["round", "square", "odd"])
        if column["attribute"] == "x":
            column["fields"] = ["lit True", "use_0"]
    # Labels of which a node may have several have no share.
    assert "| 2 | odd | 45 |" in render_card(Card.model_validate(values))
    # Only fields of a city are renamed by their categories.
    for city, names in {"no": "lit True, use_0", "city": "lit yes, use grass"}.items():
        statistics = {city: {"vocabulary": {"use": ["grass"]}}}
        page = render_card(Card.model_validate({**values, "statistics": statistics}))
        assert f"| node features | 2 ({names}) |" in page
    counts = {"classes": {"total": [], "splits": {build.card.default_split: {"train": [1]}}}}
    # A split that was added to a card without statistics has counts by part alone.
    assert "## Classes" not in render_card(Card.model_validate({**values, "statistics": counts}))
    nothing = {"splits": {}, "default_split": "", "statistics": {}, "receipts": [], "citation": ""}
    bare = Card.model_validate({**values, **nothing})
    assert "## Splits" not in render_card(bare)
    assert "## Classes" not in render_card(bare)


def test_the_code_on_the_page_reads_the_first_graph(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_raw(tmp_path / "raw", 4)
    pairs = build_toy(tmp_path, jobs=1, quiet=True, parameters={"edges": "index"})
    for shown, key, shape in ((build, "neighbours", (5, 2)), (pairs, "edges", (2, 10))):
        code = re.search(r"```python\n(.*?)```", render_card(shown.card), re.DOTALL)
        assert code is not None
        namespace: dict[str, object] = {"h5py": h5py}
        monkeypatch.chdir(shown.path)
        exec(code[1], namespace)  # what the page tells users to type
        assert namespace["rows"].shape == (5, 2)  # type: ignore[attr-defined]
        assert namespace[key].shape == shape  # type: ignore[attr-defined]


def check(croissant: dict, caplog: pytest.LogCaptureFixture, folder: Path) -> None:
    """Read it by mlcroissant: no error and no warning, neither kept nor logged."""
    mlcroissant = pytest.importorskip("mlcroissant", reason="mlcroissant is not installed")
    file = folder / "found.json"
    file.write_text(json.dumps(croissant))
    metadata = mlcroissant.Dataset(file).metadata
    assert not metadata.ctx.issues.errors
    assert not metadata.ctx.issues.warnings
    assert not caplog.records
    assert metadata.ctx.conforms_to.value == "http://mlcommons.org/croissant/1.1"
    assert len(metadata.distribution) == len(croissant["distribution"])


#: Fields of responsible AI that NeurIPS asks for, and the creators of the source.
RESPONSIBLE = {
    "creator",
    "rai:dataBiases",
    "rai:dataLimitations",
    "rai:dataSocialImpact",
    "rai:dataUseCases",
    "rai:hasSyntheticData",
    "rai:personalSensitiveInformation",
    "prov:wasDerivedFrom",
    "prov:wasGeneratedBy",
}
#: Fields of own data that only their owner knows.
OWNERS = RESPONSIBLE - {"prov:wasDerivedFrom", "prov:wasGeneratedBy"}


def test_every_dataset_gets_valid_croissant_metadata(tmp_path, caplog, build) -> None:
    for name in dataset_names():
        manifest = load_manifest(name)
        made = {
            "dataset": name,
            "manifest": name,
            "license": manifest.license.model_dump(),
            "citation": manifest.citation,
        }
        for sample in (False, True):
            croissant = build_croissant(build.card.model_copy(update={**made, "sample": sample}))
            check(croissant, caplog, tmp_path)
            assert croissant["datePublished"] >= (manifest.published or "2026"), name
            missing = RESPONSIBLE - croissant.keys()
            if not manifest.recipe:
                assert not missing, (
                    f"{name}: its metadata lack {sorted(missing)}: state authors in `citation`, "
                    "`synthetic`, and limitations, impact, biases, uses and personal in "
                    f"[responsible] of manifests/datasets/{name}/dataset.toml"
                )
            elif name in {"graphs", "points"} and not sample:
                assert missing == OWNERS, name
    states = {
        "manifest": "",
        "license": {},
        "citation": "",
        "title": 'A "title"\n of two lines \\ é',
    }
    croissant = build_croissant(build.card.model_copy(update=states))
    check(croissant, caplog, tmp_path)
    assert croissant["license"] == "Not stated."
    assert RESPONSIBLE - croissant.keys() == OWNERS  # left open
    with pytest.raises((AssertionError, ValueError)):
        check({**croissant, "version": "one"}, caplog, tmp_path)
    croissant = build_croissant(build.card.model_copy(update={"sample": True}))
    assert croissant["rai:dataCollection"].startswith("Generated")
    assert "sample" in croissant["description"]


def test_creators_are_the_authors_of_the_citation() -> None:
    names = [
        (
            "{Ramp{\\'a}{\\v{s}}ek, Ladislav and Galkin, Mikhail}",
            ["Ladislav Rampášek", "Mikhail Galkin"],
        ),
        ("{LeCun, Yann and Bottou, L{\\'e}on}", ["Yann LeCun", "Léon Bottou"]),
        ("{{OpenStreetMap contributors}}", ["OpenStreetMap contributors"]),
    ]
    for text, expected in names:
        entry = f"@inproceedings{{a,\n  title = {{T}},\n  author = {text},\n  year = {{2020}},\n}}"
        assert [creator["name"] for creator in citation_authors(entry)] == expected
        kind = "sc:Organization" if text.startswith("{{") else "sc:Person"
        assert {creator["@type"] for creator in citation_authors(entry)} == {kind}
    assert citation_authors("no entry") == []
    for name in dataset_names():
        found = "".join(
            creator["name"] for creator in citation_authors(load_manifest(name).citation)
        )
        assert not set(found) & set("{}\\,"), name


def test_croissant_names_the_files_of_the_build(build) -> None:
    croissant = json.loads((build.path / CROISSANT_NAME).read_text())
    assert croissant == json.loads(json.dumps(build_croissant(build.card)))
    names = {file["contentUrl"] for file in croissant["distribution"]}
    assert names == set(build.card.digests)
    for file in croissant["distribution"]:
        data = (build.path / file["contentUrl"]).read_bytes()
        assert file["encodingFormat"] == "application/x-hdf5"
        assert file["sha256"] == hashlib.sha256(data).hexdigest()
        assert file.get("contentSize", f"{len(data)} B") == f"{len(data)} B"

"""Shipped datasets: their classes, and the tables of the documentation."""

import inspect
import os
import pickle
import re
from importlib import import_module
from typing import get_type_hints

from support import dataset_tables
from support.raises import raises

import kmip_data
from kmip_data.datasets import base
from kmip_data.datasets.base import dataset_names_of_class
from kmip_data.errors import UsageError
from kmip_data.manifest import describe_digests
from kmip_data.pipelines.base import load_pipeline


def test_dataset_tables_equal_the_manifests():
    for page, text in dataset_tables.pages().items():
        if os.environ.get("KMIP_DATA_WRITE_DOCS"):
            page.write_text(text, "utf-8")
        assert page.read_text("utf-8") == text, "run make docs-tables"


def test_every_pin_and_address_has_a_source_and_the_papers_datasets_two_mirrors():
    for manifest in dataset_tables.manifests():
        for source in manifest.sources:
            content = source.content or manifest.content
            if source.container == "archive" and (content.known_sha256 or content.known_md5):
                assert content.pin_source, (
                    f"{manifest.name}: say in `pin_source` of [content] who stated the digests of "
                    f"the members of {source.name}"
                )
            for mirror in source.mirrors:
                assert dataset_tables.publisher_of(mirror)
                stated = mirror.git_blob or source.is_packaged
                pinned = mirror.is_pinned or mirror.members_sha256
                assert stated or bool(mirror.pin_source) == bool(pinned), (
                    f"{manifest.name}, {mirror.url}: a mirror states `pin_source` if it states a "
                    "digest, and only then"
                )
            if manifest.tested_on:
                assert len(source.mirrors) >= 2, (
                    f"{manifest.name}: a dataset of the paper needs a second mirror of {source.name}"
                )


def test_every_dataset_is_in_a_family_of_the_readme():
    readme = (dataset_tables.ROOT / "README.md").read_text("utf-8")
    for manifest in dataset_tables.manifests():
        assert f"`{manifest.name}`" in readme, (
            f"name `{manifest.name}` on a page in docs/datasets, and run `make docs-tables`"
        )


def test_every_dataset_with_raw_files_has_its_digests_on_a_page():
    pages = dataset_tables.pages().items()
    after = [
        text.partition("## Digests")[2] for page, text in pages if page.parent.name == "datasets"
    ]
    for manifest in dataset_tables.manifests():
        if manifest.sources:
            line = f"`{manifest.name}`(, `[a-z0-9-]+`)*: {re.escape(describe_digests(manifest))}"
            assert any(re.search(line, text) for text in after), (
                f"name `{manifest.name}` on a page in docs/datasets, and run `make docs-tables`"
            )


#: Parameter of a build that an argument of the class replaces.
REPLACED = {
    ("ShapeNetPart", "category"): "categories",
    ("GraphLandDataset", "target_scaling"): None,
}


def test_every_dataset_has_a_public_class_with_the_arguments_of_its_pipeline():
    modules = dataset_tables.dataset_classes()
    for manifest in dataset_tables.manifests():
        title = manifest.dataset_class
        if manifest.recipe or not title:
            continue
        made = getattr(import_module(f"kmip_data.datasets.{modules[title]}"), title)
        assert manifest.name in dataset_names_of_class(made), (
            f"{title} does not open {manifest.name}: state `dataset_name` or `dataset_names` in it"
        )
        if manifest.name != made.dataset_name:
            continue
        parameters = inspect.signature(made).parameters
        types = get_type_hints(made.__init__)
        pipeline = load_pipeline(manifest)
        fields = pipeline.Params.model_fields | pipeline.SplitParams.model_fields
        for argument, field in fields.items():
            if (title, argument) in REPLACED:
                assert REPLACED[title, argument] in {None, *parameters}
                continue
            stated = f"{title}.__init__ must take {argument}: {field.annotation} = {field.default}"
            assert argument in parameters, stated
            if argument in types and argument != "limit":
                assert parameters[argument].default == field.default, stated
                assert types[argument] == field.annotation, stated
            else:  # a key that all classes share
                assert argument in base.RuleArguments.__annotations__, stated


def test_a_class_of_three_lines_opens_a_dataset_with_the_parameters_of_its_pipeline(tmp_path):
    class Areas(base.BuiltDataset):
        dataset_name = "s3dis"

    areas = Areas(tmp_path, k=4, test_area=5, limit=24, sample=True, jobs=1, quiet=True)
    assert areas.card.parameters["k"] == 4
    assert areas.split_name == "upstream-area5-seed0"
    with raises(UsageError, naming=["Areas", "kk"]):
        Areas(tmp_path, kk=4)
    with raises(UsageError, naming="category"):  # its own argument is ``categories``
        kmip_data.ShapeNetPart(tmp_path, category=("Cap",))


def test_a_class_is_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(kmip_data.S3DIS)) is kmip_data.S3DIS

"""Classes made from the parameters of pipelines, and the stubs that type checkers read."""

import os
import pickle
import re

import pytest
from support import dataset_stub, dataset_tables

import kmip_data
from kmip_data.datasets import shipped
from kmip_data.manifest import digests_of, load_manifest
from kmip_data.pipelines.base import load_pipeline


def test_the_stubs_are_those_of_the_classes():
    if os.environ.get("KMIP_DATA_WRITE_DOCS"):
        dataset_stub.write()
    again = "run make docs-tables"
    assert dataset_stub.STUB.read_text("utf-8") == dataset_stub.stub(), again
    assert dataset_stub.PUBLIC.read_text("utf-8") == dataset_stub.public_stub(), again


def test_the_tables_of_datasets_are_those_of_the_manifests():
    for page, text in dataset_tables.pages().items():
        if os.environ.get("KMIP_DATA_WRITE_DOCS"):
            page.write_text(text, "utf-8")
        assert page.read_text("utf-8") == text, "run make docs-tables"


def test_every_dataset_is_in_a_family_of_the_readme():
    readme = (dataset_tables.ROOT / "README.md").read_text("utf-8")
    for manifest in dataset_tables.manifests():
        assert f"`{manifest.name}`" in readme, manifest.name


def test_every_dataset_with_raw_files_has_its_digests_on_a_page():
    pages = dataset_tables.pages().items()
    after = [
        text.partition("## Digests")[2] for page, text in pages if page.parent.name == "datasets"
    ]
    for manifest in dataset_tables.manifests():
        if manifest.sources:
            line = f"`{manifest.name}`(, `[a-z0-9-]+`)*: {re.escape(digests_of(manifest))}"
            assert any(re.search(line, text) for text in after), manifest.name


def test_every_parameter_of_a_pipeline_is_an_argument():
    for title in shipped.class_names():
        made = getattr(shipped, title)
        pipeline = load_pipeline(load_manifest(made._name))
        arguments = {*made._parameters, *made._rule, *made._shared, *made._replaced, *made._options}
        assert {*pipeline.Params.model_fields} <= arguments, title
        rules = {*pipeline.SplitParams.model_fields} - {"split"} | {"split_rule"}
        assert rules <= arguments, title


def test_a_class_is_made_once_and_pickled_by_its_name():
    assert pickle.loads(pickle.dumps(kmip_data.S3DIS)) is kmip_data.S3DIS is shipped.S3DIS


def test_a_name_without_a_dataset_is_no_class():
    for name in ("ImageNet", "OwnPoints", "_private"):
        with pytest.raises(AttributeError, match=name):
            getattr(shipped, name)

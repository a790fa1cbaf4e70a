"""Constructor calls as PyTorch Geometric's classes take them: only the import line differs."""

import inspect
import re
from functools import partial

import pytest
import torch
import torch_geometric.transforms as T
from support.datasets import datasets
from support.raises import raises
from torch_geometric import datasets as pyg

import kmip_data
from kmip_data import S3DIS, CityNetwork, GraphLandDataset, MalNetTiny, ShapeNetPart
from kmip_data.datasets import base
from kmip_data.datasets.pyg_arguments import PYG_PROCESSING_ARGUMENTS
from kmip_data.datasets.pyg_named_datasets import GNNBenchmarkDataset, LRGBDataset, ShapeNet
from kmip_data.errors import UsageError
from kmip_data.format.targets import DEFAULT_METRICS, eval_metric, num_tasks, task_type
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.models.training.metrics import METRICS
from kmip_data.pipelines.base import load_pipeline
from kmip_data.strict_model import shipped_datasets

ROOT = "some/root"
TRANSFORM, PRE, KEEP = T.NormalizeScale(), T.Constant(), bool
STEPS_GIVEN = {"transform": TRANSFORM, "pre_transform": PRE, "pre_filter": KEEP}
THEIRS = {"ShapeNetPart": "ShapeNet"}
FUNCTIONS = {"ShapeNet", "LRGBDataset", "GNNBenchmarkDataset"}

#: A call of PyTorch Geometric's class (its documentation and examples have most of them), and ours.
SAME = {
    "S3DIS: root": (lambda: S3DIS(ROOT), lambda: S3DIS(root=ROOT)),
    "S3DIS: test": (
        lambda: S3DIS(ROOT, test_area=6, train=False),
        lambda: S3DIS(root=ROOT, test_area=6, split="test"),
    ),
    "S3DIS: all in order": (
        lambda: S3DIS(ROOT, 5, True, TRANSFORM, PRE, KEEP, False),
        lambda: S3DIS(root=ROOT, test_area=5, split="trainval", **STEPS_GIVEN),
    ),
    "ShapeNet: the segmentation examples": (
        lambda: ShapeNet(
            ROOT, "Airplane", split="trainval", transform=TRANSFORM, pre_transform=PRE
        ),
        lambda: ShapeNetPart(
            root=ROOT,
            categories="Airplane",
            split="trainval",
            transform=TRANSFORM,
            pre_transform=PRE,
        ),
    ),
    "ShapeNet: its default part": (
        lambda: ShapeNet(ROOT),
        lambda: ShapeNetPart(root=ROOT, split="trainval"),
    ),
    "ShapeNet: in order": (
        lambda: ShapeNet(ROOT, ["Cap"], False, "test", TRANSFORM, PRE, KEEP, False),
        lambda: ShapeNetPart(
            root=ROOT,
            categories=["Cap"],
            split="test",
            columns=["edge_index", "y", "pos", "category"],
            **STEPS_GIVEN,
        ),
    ),
    "MalNetTiny: in order": (
        lambda: MalNetTiny(ROOT, "trainval", TRANSFORM),
        lambda: MalNetTiny(root=ROOT, split="trainval", transform=TRANSFORM),
    ),
    "MalNetTiny: all": (
        lambda: MalNetTiny(ROOT, None),
        lambda: MalNetTiny(root=ROOT, split=None),
    ),
    "CityNetwork: in order": (
        lambda: CityNetwork(ROOT, "paris"),
        lambda: CityNetwork(name="paris", root=ROOT),
    ),
    "CityNetwork: a keyword": (
        lambda: CityNetwork(ROOT, name="Paris", transform=TRANSFORM),
        lambda: CityNetwork(name="paris", root=ROOT, transform=TRANSFORM),
    ),
    "CityNetwork: keywords": (
        lambda: CityNetwork(root=ROOT, name="la", augmented=True, delete_raw=False),
        lambda: CityNetwork(name="la", root=ROOT, raw_features=True),
    ),
    "CityNetwork: one stays ours": (lambda: CityNetwork("la"), lambda: CityNetwork(name="la")),
    "GraphLandDataset: in order": (
        lambda: GraphLandDataset(ROOT, "city-roads-M", "RH"),
        lambda: GraphLandDataset(name="city-roads-m", root=ROOT, split_rule="RH"),
    ),
    "GraphLandDataset: keywords": (
        lambda: GraphLandDataset(
            root=ROOT,
            name="city-roads-L",
            split="RL",
            numerical_features_transform="default",
            regression_targets_transform=None,
            to_undirected=True,
        ),
        lambda: GraphLandDataset(
            name="city-roads-l", root=ROOT, split_rule="RL", target_scaling="none"
        ),
    ),
    "PCQM4Mv2: in order": (
        lambda: kmip_data.PCQM4Mv2(ROOT, "val", TRANSFORM),
        lambda: kmip_data.PCQM4Mv2(root=ROOT, split="val", transform=TRANSFORM),
    ),
    "GeomGCN: in order, as PyTorch Geometric's WebKB": (
        lambda: kmip_data.GeomGCN(ROOT, "cornell", TRANSFORM),
        lambda: kmip_data.GeomGCN(name="cornell", root=ROOT, transform=TRANSFORM),
    ),
    "ECHO: in order": (
        lambda: kmip_data.ECHO(ROOT, "sssp", TRANSFORM),
        lambda: kmip_data.ECHO("sssp", root=ROOT, transform=TRANSFORM),
    ),
    "LRGBDataset: in order": (
        lambda: LRGBDataset(ROOT, "Peptides-func", "val", TRANSFORM),
        lambda: kmip_data.PeptidesFunc(root=ROOT, split="val", transform=TRANSFORM),
    ),
}


class Stop(Exception):
    """Ends an opening before anything is built."""


@pytest.fixture
def opened(monkeypatch):
    """Return the recorded arguments of ``_open``, without functions created per call."""
    calls = []

    def note(self, root, arguments, *, name=None, class_transform=None, **others):
        calls.append((type(self), root, dict(arguments), name, others))
        raise Stop

    monkeypatch.setattr(base.BuiltDataset, "_open", note)

    def recorded_arguments(call):
        with pytest.raises(Stop):
            call()
        return calls.pop()

    return recorded_arguments


def test_pyg_calls_equal_our_calls(opened, subtests):
    for name, (theirs, ours) in SAME.items():
        with subtests.test(name):
            asked = opened(theirs)
            arguments = asked[2]
            assert not arguments.pop("force_reload", False)
            assert asked == opened(ours)


#: Classes whose second argument is a name or a task, and the subset of one with another order.
OTHER_ORDER = {"ECHO", "GeomGCN", "LRIM", "PCQM4Mv2Subset"}
WITHOUT_COUNTERPART = sorted(
    {
        name
        for name in {load_manifest(dataset).dataset_class for dataset in shipped_datasets()}
        if name
        and issubclass(getattr(kmip_data, name), base.BuiltDataset)
        and name not in {*dir(pyg), *THEIRS, *OTHER_ORDER}
    }
)


@pytest.mark.parametrize("name", WITHOUT_COUNTERPART)
def test_root_and_split_are_the_first_arguments(opened, name):
    dataset_class = getattr(kmip_data, name)
    try:
        asked = opened(lambda: dataset_class(ROOT, "val", TRANSFORM, PRE, KEEP))
    except TypeError as error:
        pytest.fail(
            f"{name} does not take root and split first ({error}): decorate its __init__ with "
            "accept_root_and_split of kmip_data/datasets/pyg_arguments.py"
        )
    assert asked == opened(lambda: dataset_class(root=ROOT, split="val", **STEPS_GIVEN))


def test_a_class_with_several_datasets_opens_each_by_its_name(opened):
    manifests = [load_manifest(name) for name in shipped_datasets()]
    several = [manifest for manifest in manifests if manifest.pyg]
    assert {manifest.pyg for manifest in several} == {"LRGBDataset", "GNNBenchmarkDataset"}
    for manifest in several:
        theirs = getattr(kmip_data, manifest.pyg)
        ours = getattr(kmip_data, manifest.dataset_class)
        asked = opened(partial(theirs, root=ROOT, name=manifest.name.upper(), split="test"))
        assert asked == opened(partial(ours, root=ROOT, split="test")), manifest.name


def test_positional_arguments_have_the_order_of_pyg(tmp_path):
    for name in (*{*kmip_data.__all__} & {*dir(pyg)} - FUNCTIONS, "ShapeNetPart"):
        ours = getattr(kmip_data, name)
        theirs = getattr(pyg, THEIRS.get(name, name))
        order = ", ".join(inspect.signature(theirs).parameters)
        # A class called as one of PyTorch Geometric's takes its arguments in the same order: pyg_order.
        with raises(TypeError, naming=order):
            ours(*range(20))
    functions = {ShapeNet: pyg.ShapeNet, LRGBDataset: pyg.LRGBDataset}
    for ours, theirs in {**functions, GNNBenchmarkDataset: pyg.GNNBenchmarkDataset}.items():
        shown = [
            (parameter.name, parameter.default)
            for parameter in inspect.signature(ours).parameters.values()
            if parameter.kind is parameter.POSITIONAL_OR_KEYWORD
        ]
        usual = inspect.signature(theirs).parameters
        assert [name for name, _ in shown] == list(usual)[: len(shown)]
        assert list(usual)[len(shown) :] == list(PYG_PROCESSING_ARGUMENTS)
        assert all(
            value == usual[name].default for name, value in shown if value is not None
        )  # root has a default here


WRONG = {
    "train and split": (lambda: S3DIS(ROOT, train=True, split="val"), "split"),
    "twice": (lambda: S3DIS(ROOT, 5, test_area=6), "test_area"),
    "root twice": (lambda: CityNetwork(ROOT, "paris", root=ROOT), "root"),
    "force_reload": (lambda: S3DIS(ROOT, force_reload=True), "force_reload"),
    "augmented": (lambda: CityNetwork(ROOT, "paris", False), "augmented"),
    "delete_raw": (lambda: CityNetwork(ROOT, "paris", delete_raw=True), "delete_raw"),
    "another scaling": (
        lambda: GraphLandDataset(ROOT, "city-roads-M", "RL", "min_max_scaler"),
        "min_max_scaler",
    ),
    "a name of PyG's that is not here": (lambda: LRGBDataset(ROOT, "Peptides"), "Peptides"),
    "another dataset": (
        lambda: GNNBenchmarkDataset(ROOT, "TSP"),
        "TSP",
    ),
    "another task": (lambda: kmip_data.ECHO("ssp"), "ssp"),
    "a part": (lambda: MalNetTiny(ROOT, "trains"), "trains"),
}


def test_unsupported_arguments_are_named(tmp_path, monkeypatch, subtests):
    monkeypatch.chdir(tmp_path)
    for name, (call, named) in WRONG.items():
        with subtests.test(name), raises(UsageError, naming=named):
            call()
    with raises(TypeError, naming=7):
        S3DIS(ROOT, 6, True, None, None, None, False, 8)
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


QUIET = {"quiet": True, "jobs": 1, "k": 4, "limit": 24, "sample": True}


def test_s3dis_trains_on_all_areas_except_the_test_area(home):
    """PyTorch Geometric's train part is all blocks outside the test area."""
    whole = S3DIS(home, split=None, **QUIET)
    in_area = [key.startswith("Area_6") for key in whole.keys]
    train = S3DIS(home, 6, True, **QUIET)
    test = S3DIS(home, test_area=6, train=False, **QUIET)
    assert sorted(test.records.tolist()) == [i for i, inside in enumerate(in_area) if inside]
    assert sorted(train.records.tolist()) == [i for i, inside in enumerate(in_area) if not inside]
    parts = [S3DIS(home, split=split, **QUIET) for split in ("train", "val", "valid", "validation")]
    assert train.keys == parts[0].keys + parts[1].keys
    assert [part.split for part in parts[1:]] == ["val"] * 3
    assert len({part.split_digest for part in parts[1:]} | {train.split_digest}) == 2
    assert parts[1].keys == parts[2].keys == parts[3].keys
    assert kmip_data.open(train.build.path, "valid").keys == parts[1].keys


def test_filters_select_and_transforms_are_applied_in_order(home):
    def keep(data):
        assert data.x.shape[1] == 9  # before any transform
        return float(data.pos[:, 2].max()) > 0.5

    def first(data):
        data.x = data.x[:, :3]
        return data

    def second(data):
        data.x = data.x * 2
        return data

    whole = S3DIS(home, split=None, **QUIET)
    wanted = [number for number, data in enumerate(whole) if keep(data)]
    chosen = S3DIS(
        home, split=None, pre_filter=keep, pre_transform=first, transform=second, **QUIET
    )
    assert chosen.records.tolist() == wanted
    assert len(chosen) == len(wanted)
    assert all(
        torch.equal(data.x, whole[number].x[:, :3] * 2)
        for data, number in zip(chosen, wanted, strict=True)
    )


def test_ogb_attributes_are_available(home):
    whole = S3DIS(home, split=None, **QUIET)
    divided = whole.get_idx_split()
    assert list(divided) == ["train", "valid", "test"]
    for name, part in (("train", "train"), ("valid", "val"), ("test", "test")):
        assert whole[divided[name]].keys == S3DIS(home, split=part, **QUIET).keys
    half = whole[::2]
    assert half[half.get_idx_split()["test"]].keys == [
        key for key in whole[divided["test"]].keys if key in half.keys
    ]
    about = (whole.name, whole.task_type, whole.num_tasks, whole.eval_metric)
    assert about == ("s3dis", "multiclass classification", 1, "miou")
    with pytest.raises(UsageError):
        S3DIS(home, split="train", **QUIET).get_idx_split()


#: Words of a manifest's ``task`` -> the name of the metric.
METRIC_NAMES = {
    "accuracy": "accuracy",
    "accuracy of each class in the mean": "accuracy_sbm",
    "ROC-AUC": "roc_auc",
    "mIoU": "miou",
    "macro-F1": "f1",
    "average precision": "ap",
    "MAE": "mae",
    "R²": "r2",
    "mean reciprocal rank": "mrr",
    "log10 MSE": "log10_mse",
}
KINDS = {
    "classification": "multiclass classification",
    "regression": "regression",
    "prediction": "link prediction",
}


def stated_task(task: str) -> tuple[str, int, str]:
    """Kind, number of tasks and metric as the sentence of a manifest has them."""
    task = task.partition(";")[0].partition(" (task=")[0].partition(" of the ")[0]
    subject, _, metric = task.partition(" metric ")
    kind = KINDS[subject.replace(",", "").split()[1]]
    number = re.search(r"(\d+) (labels|targets)", subject)
    if "label" in subject or ", 2 classes" in subject:
        kind = "binary classification"
    return kind, int(number[1]) if number else 1, METRIC_NAMES[metric]


@pytest.mark.parametrize("name", datasets())
def test_a_dataset_has_the_task_that_its_manifest_states(name):
    manifest = load_manifest(name)
    pipeline = load_pipeline(manifest)
    schema = pipeline.schema(pipeline.Params())
    task = (task_type(schema), num_tasks(schema), eval_metric(schema, name))
    assert task == stated_task(manifest.task)


def test_metrics_of_datasets_fit_their_tasks():
    chosen = [*DEFAULT_METRICS.items()]
    for name in dataset_names():
        chosen += load_manifest(name).metrics.items()
    assert len(chosen) >= 12
    for kind, metric in chosen:
        kinds = {METRICS[metric].target_type}
        if METRICS[metric].supports_two_classes:
            kinds.add("classification")
        assert kind in kinds, metric
    pipeline = load_pipeline(load_manifest("long-range"))
    distances = pipeline.schema(pipeline.Params(task="diam"))
    assert eval_metric(distances, "long-range") == "mae"
    # Without a manifest, the metric that a training takes.
    schemas = [distances, pipeline.schema(pipeline.Params())]
    usual = [eval_metric(schema, "") for schema in schemas]
    assert usual == [DEFAULT_METRICS["regression"], DEFAULT_METRICS["classification"]]

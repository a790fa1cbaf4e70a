"""Misspelt names, options and keys: found before anything heavy is imported, with a hint that works."""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

from support.cases import check_each

from kmip_data.cli.main import run_command_line
from kmip_data.cli.shared.dataset_options import DatasetParameters
from kmip_data.manifest import dataset_names, load_manifest
from kmip_data.pipelines.base import load_pipeline
from kmip_data.runtime.extras import install_command
from kmip_data.text import PARAMETER_OPTIONS

#: Line -> words of its error.
CASES = {
    "build": "Missing argument 'NAME'",
    "build heslinki": "Did you mean 'helsinki'?\n  next: kmip-data build helsinki\n",
    "build s3dis --kk 3": "next: kmip-data build --help",
    "build s3dis --split room": "--split-rule",  # the rule of a split is not its part
    "build s3dis --split-rule foo": "split_rule = 'foo': must be 'upstream'",
    "build s3dis --split-rule stratifid": "next: kmip-data build s3dis --split-rule stratified\n",
    "build s3dis --test-area 7": "equal to 6\n  next: kmip-data build s3dis --test-area 6\n",
    "build graphs --name a --archive a.csv --set label toxic": "a.csv --set label=toxic\n",
    "build graphs --name a --archive a.csv --set task=classifikation": "--set task=classification\n",
    "build graphs --name a --archive a.csv --set undirected=maybe": "--set undirected=true\n",
    "build graphs --name a --archive a.csv --set val_fraction=2": "--set val_fraction=0.1\n",
    "build s3dis --k many": "'--k': 'many'",
    "build s3dis --set knn_rule=exat": "next: kmip-data build s3dis --set knn_rule=exact\n",
    "build s3dis --set knn_rull=exact": "Did you mean 'knn_rule'",
    "build s3dis --place here": "s3dis takes no --name, --place, --images or --masks",
    "build helsinki --k 3": "'k' is unknown",
    "build shapenet-part --sample --set category=Chiar": "'Chair'",
    "encode helsinki rwsee20": "Did you mean 'rwse20'",
    "encode s3dis": "ENCODING",
    "encode s3dis rwse0": "no encoding called",
    "encode s3dis degree-profile": "degree-profile needs a version",
    "encode s3dis rwse2": "next: kmip-data build s3dis\n",
    "encode helsinki rwse2000": "rwse20\n  remedy: numbers go up to 1,024\n  next: kmip-data encode --help",
    "verify s3dis": "kmip-data build s3dis",
    "info shapenet": "Did you mean 'shapenet-part'",
    "info ogbn": "Did you mean 'ogbn-arxiv' or 'ogbn-products'?",  # the longer ones, at most three
    "info nothing": "There is no dataset or build folder called 'nothing'.\n",
    "info s3dis --model gat2": "Did you mean 'gat'",
    "info s3dis --model foo": "There is no preset of s3dis called 'foo'.\n",
    "preview s3dis --k 16": "next: kmip-data build s3dis --k 16\n",
    "explore helsinkii": "called 'helsinkii'. Did you mean 'helsinki'?\n  next: ",
    "explore nothing/of/this": "There is no run, dataset or build folder called 'nothing/of/this'",
    "train --epochs 5": "NAME (or --dataset NAME)",
    "train helsinki --k 3": "kmip-data train helsinki --set model.attention.k=3\n",
    "train s3dis --test-area 7": "next: kmip-data train s3dis --test-area 6\n",
    "train s3dis --epochs 0": "x>=1.\n  next: kmip-data train s3dis --epochs 1\n",
    "train s3dis --epochs=2.4": "next: kmip-data train s3dis --epochs 2\n",
    "train --epochs 5 --k 3 s3diss": "Did you mean 's3dis'",
    "train shapenet-part --category=Chair": "kmip-data train has no option --category.",
    "train s3dis --lr 1e-3": "next: kmip-data train s3dis --set optimizer.lr=1e-3\n",
    "train s3dis --lr --quiet": "train s3dis --quiet --set optimizer.lr=VALUE\n",
    "train s3dis --set optimizer.learning_rate=1": "next: kmip-data train s3dis --set optimizer.lr=1\n",
    "train s3dis --device gpu": "next: kmip-data train s3dis --device cuda\n",
    "list s3dis": "next: kmip-data info s3dis\n",
    "predict s3dis": "next: kmip-data train s3dis\n",
    "list -all": "next: kmip-data list --all\n",
    "ls": "Did you mean 'list'?\n  next: kmip-data list\n",
    "delete helsinki --yes": "Did you mean 'remove'?\n  next: kmip-data remove helsinki --yes\n",
    "train s3dis --set training.class_weights=true": "s3dis --set training.loss=weighted_cross_entropy\n",
    "train s3dis --set model.attention.kind=full": "--set model.attention.kind=transformer\n",
    "train squirrel/gcn": "on other data\n  next: kmip-data train squirrel --model gcn\n    or: kmip-data ",
    "train s3dis --set data.split_seed=1": "--set data.split.split_seed=1\n",
    "encode s3dis rwse": "next: kmip-data encode s3dis rwse20\n",
    "build graphs --archive a.csv": "next: kmip-data build graphs --archive a.csv --name a\n",
    "build graphs --archive a.csv --name=s3dis": "graphs --archive a.csv --name my-s3dis\n",
    "train s3dis --name a:b": "next: kmip-data train s3dis --name a-b\n",
    "train s3dis --label toxic": "The target is chosen when a dataset is built",
    "train s3dsi --model gcn": "next: kmip-data train s3dis --model gcn\n",
    "trian s3dis": "next: kmip-data train s3dis\n",
    "train s3dis --epoch 2": "next: kmip-data train s3dis --epochs 2\n",
    "build graphs --name a --archive a.csv --label y": "--archive a.csv --set label=y\n",
    "build graphs --name a --set picture=perhaps": "expected: true or false\n",
    "train s3dis --set training.metric=AUROC": "next: kmip-data train s3dis --set training.metric=roc_auc\n",
    "train s3dis --seed 3": "Did you mean --seeds?\n  next: kmip-data train s3dis --seeds 3\n",
    "info pyg": "next: kmip-data build pyg --set class=MODULE:CLASS --name NAME\n",
    "sweep --dataset heslinki": "'helsinki'?\n  next: kmip-data sweep --dataset helsinki\n",
    "remove heslinki": "next: kmip-data list\n",
    "train s3dis gcn": "next: kmip-data train s3dis --model gcn\n",
    "sweep s3dis": "next: kmip-data sweep --dataset s3dis\n",
    "sweep --model gat gcn": "next: kmip-data sweep --model gat,gcn\n",
    "sweep gcn --dataset cora": "next: kmip-data sweep --dataset cora --model gcn\n",
    "train s3dis --set model.hidden_dim=57": "next: kmip-data train s3dis --set model.hidden_dim=56\n",
    "train s3dis --set data.parameters.knn_rull=exact": "--set data.parameters.knn_rule=exact\n",
    "train --reproduce helsinki/gcn --device cpu --epochs 2": "--reproduce helsinki/gcn --device cpu\n",
    "train s3dis --optimizer adam": "--set optimizer.name=adam\n",
    "train s3dis --hidden 128": "next: kmip-data train s3dis --set model.hidden_dim=128\n",
    "train s3dis --set model.rwse.steps=9": "the positional encoding rwse, which this run does not",
    "train s3dis --set model.lappe.freqs=9": "next: kmip-data train s3dis\n",
    "train s3dis --set schedule.patience=5": "is read by the schedule reduce_on_plateau, which this",
    "train cora --model sage --set model.edge_encoder=linear": "message passing with edge features, such as",
    "sweep --dataset cora --set schedule.min_lr=1,2": "next: kmip-data sweep --dataset cora\n",
    "train s3dis --batchsize 8": "--set training.batch_size=8\n",
    "train s3dis --split test": "no option --split. Did you mean --split-seed or --split-rule",
    "train s3dis --neighbor-sampling ten": "such as 5,10 or 0..3",
    "train s3dis --model GAT": "Did you mean 'gat'",
    "train s3dis --model gat2": "Did you mean 'gat'?",
    "train s3dis --variant txt": "Did you mean 'text'",
    "train s3dis --set variant=text": "next: kmip-data train s3dis --variant text\n",
    "train s3dis --set foo=1": "next: kmip-data info s3dis --model gps-kmip",
    "train s3dis --set optimizer": "expected: KEY=VALUE",
    "train s3dis --set optimizer.lr=0.1,0.01": "kmip-data sweep --dataset s3dis --set optimizer.lr=0.1,0.01\n",
    "train s3dis --set optimizer.name=adam,sgd": "--dataset s3dis --set optimizer.name=adam,sgd\n",
    "train s3dis --set model.layers=2,many": "next: kmip-data train s3dis --set model.layers=",
    "train s3dis --set optimizer.lr=fast": "next: kmip-data train s3dis --set optimizer.lr=0.001\n",
    "train s3dis --set training.epochz=1": "Did you mean 'training.epochs'",
    "train s3dis --test-area 4 --set data.split.test_area=5": "=5\n    or: kmip-data train s3dis --test",
    "train s3dis --k 8 --set data.parameters.k=9": "--k 8 and --set data.parameters.k=9 give two",
    "train s3dis --epochs 3 --set training.epochs=5": "give two values of training.epochs",
    "build s3dis --k 8 --set k=9": "--k 8 and --set k=9 give two values of k",
    "build graphs --name own --sample": "next: kmip-data build graphs --name own\n",
    "verify /": "without config.toml and card.json; this command takes a run, dataset or build folder.",
    "train /": "without card.json; this command takes a dataset or build folder.\n  next: kmip-data list\n",
    "explore ./nothing": "called './nothing'.\n  next: ",
    "train s3dis --seeds x": "--seeds is not a list",
    "train s3dis --init-from foo": "There is no run called 'foo'",
    "train /no/such/folder": "/no/such/folder",
    "train --config none.toml": "There is no file none.toml.\n  next: ",
    "train texas --set fold=3": "next: kmip-data train texas --set data.split.fold=3\n",
    "train s3dis --set knn_rule=exact": "next: kmip-data train s3dis --set data.parameters.knn_rule=exact\n",
    "train s3dis --set training.shuffle false": "next: kmip-data train s3dis --set training.shuffle=false\n",
    "train --set optimizer.lr s3dis": "default\n  next: kmip-data train s3dis --set optimizer.lr=0.001\n",
    "train s3dis --set training.task=classifikation": "--set training.task=classification\n",
    "evaluate foo": "There is no run called 'foo'",
    "evaluate": "Missing argument 'RUN'",
    "sweep": "a dataset, or a plan: influence-of-k, ",
    "sweep small-citys": "Did you mean 'small-cities'",
    "sweep small-cities --model gat2": "Did you mean 'gat'",
    "sweep small-cities --set foo=1": "There is no configuration key 'foo'",
    "sweep small.toml": "There is no file small.toml.",
    "report papercity": "Did you mean 'paper-city'",
    "push nothing share": "There is no run, dataset or build folder called 'nothing'.\n",
    "report foo": "There is no sweep or run called 'foo'.\n",
    "remove nothing-here": "nothing-here",
}
#: Packages that take seconds to import, of which a misspelt name needs none.
HEAVY = (
    "torch",
    "torch_geometric",
    "numba",
    "pandas",
    "scipy",
    "matplotlib",
    "lightning",
    "torchmetrics",
    "requests",
)
_RUN = f"""
import contextlib, io, json, sys
sys.modules.update(dict.fromkeys({HEAVY!r}))  # importing one of these is an error now
from kmip_data.cli.main import run_command_line as run
found = {{}}
for line in json.load(sys.stdin):
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        found[line] = run(line.split()), errors.getvalue()
json.dump(found, sys.stdout)
"""


def test_misspelt_names_need_no_heavy_import_and_leave_nothing(home, tmp_path):
    """Imports are asserted instead of time: each command fell from up to 7 s of CPU to at most 0.5 s."""
    lines = json.dumps([*CASES])
    words = [sys.executable, "-c", _RUN]
    ended = subprocess.run(
        words, input=lines, capture_output=True, text=True, check=True, cwd=tmp_path
    )
    outcomes = json.loads(ended.stdout)

    def check(line):
        code, message = outcomes[line]
        assert code == 2
        assert CASES[line] in message
        assert "next: kmip-data " in message or "remedy: " in message

    check_each(check, CASES)
    assert not home.exists()


def test_a_file_behind_the_name_of_a_build_belongs_to_archive(tmp_path, home, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # A name that is possible and no published dataset's; a published dataset takes no --name.
    (tmp_path / "My Roads.csv").write_text("source,target\n1,2\n")
    (tmp_path / "cora.csv").write_text("source,target\n1,2\n")
    for words, step in (
        (["graphs", "My Roads.csv"], "graphs --name my-roads --archive 'My Roads.csv'"),
        (["graphs", "cora.csv"], "graphs --name my-cora --archive cora.csv"),
        (["s3dis", "cora.csv"], "s3dis --archive cora.csv"),
    ):
        assert run_command_line(["build", *words]) == 2
        assert f"next: kmip-data build {step}\n" in capsys.readouterr().err


def test_a_corrected_command_keeps_the_options_of_its_run(tmp_path, capsys):
    plugin = tmp_path / "plugin.py"
    plugin.write_text('PLUGIN = {"norms": {}}\n')
    folder = tmp_path / "runs/a/b/c"
    folder.mkdir(parents=True)
    (folder / "config.toml").touch()
    kept = ["--stop-after", "5", "--offline", "--plugin", str(plugin), "--home", str(tmp_path)]
    config = str(folder / "config.toml")
    for others in (["--seeds", "0..2"], ["--epochs", "5"], ["cora"], ["--config", config]):
        assert run_command_line(["train", "--resume", "a/b/c", *others, *kept]) == 2
        step = capsys.readouterr().err.partition("next: ")[2].partition(";")[0].strip()
        assert step == shlex.join(["kmip-data", "train", "--resume", "a/b/c", *kept])


def test_an_extra_is_installed_by_its_packages():
    """No index has kmip-data: the command names the packages that setup.py has, without versions."""
    assert str(install_command("chem")) == "pip install rdkit"
    setup = ast.parse((Path(__file__).parents[2] / "setup.py").read_text())
    for statement in setup.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "EXTRAS":
            extras = ast.literal_eval(statement.value)
    for extra, requirements in extras.items():
        names = [re.split("[>;]", requirement)[0] for requirement in requirements]
        assert str(install_command(extra)).replace("'", "") == f"pip install {' '.join(names)}"


def test_each_parameter_of_a_dataset_that_is_no_option_is_a_key():
    def check(dataset):
        pipeline = load_pipeline(load_manifest(dataset))
        for name in {**pipeline.Params.model_fields, **pipeline.SplitParams.model_fields}:
            if name not in PARAMETER_OPTIONS:
                settings = [f"{name}=1", f"{name.replace('_', '-')}=2"]
                given = DatasetParameters().with_settings(dataset, settings)
                is_of_records = name in pipeline.Params.model_fields
                values = given.records if is_of_records else given.split
                assert values in ({name: "2"}, {name: ["1", "2"]})
                assert not (given.split if is_of_records else given.records)

    check_each(check, dataset_names())

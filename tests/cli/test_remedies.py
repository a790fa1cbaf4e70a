"""Errors and their remedies: what is printed was typed, works, and loses nothing."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from support.builds.learnable import learnable_build
from support.cli import expect_refusal, expect_success, kmip, python
from support.raises import raises
from support.type_advice import TINY

import kmip_data
from kmip_data import CityNetwork
from kmip_data.builds.home import Home
from kmip_data.cli.main import root
from kmip_data.cli.shared.completed_steps import TypedLine
from kmip_data.errors import SAME_AGAIN, Command, Setting, UsageError
from kmip_data.models import KMIPAttention
from kmip_data.models.training.memory_estimate import training_memory_error
from kmip_data.models.training.run.result import read_result
from kmip_data.pipelines.build import build_own
from kmip_data.pipelines.common_columns import feature_column, regression_column
from kmip_data.pipelines.find_builds import find_build

SMALL = [
    "--device",
    "cpu",
    "--quiet",
    "--set",
    "model.parameter_budget=none",
    "--set",
    "model.layers=1",
]
SMALL += ["--set", "model.hidden_dim=8"]


def remedy_of(text: str) -> list[str]:
    """Return the arguments of the first command that a message advises."""
    command = re.search(r"kmip-data ([^,;\n]*?)(?:,| trains| continues|$)", text, re.MULTILINE)[1]
    return shlex.split(command)


@pytest.fixture
def build(home):
    return learnable_build(home / "built" / "clouds")


def test_a_sweep_accepts_samples(home):
    axes = ("--dataset", "helsinki", "--model", "gcn", "--epochs", "3")
    words = ("sweep", *axes, "--set", "data.sample=true", "--dry-run")
    runs = expect_success(*words, "--json").json["runs"]
    assert [(run["dataset"], run["sample"], run["epochs"]) for run in runs] == [
        ("helsinki-sample", True, 3)
    ]


def test_a_finished_run_can_be_trained_longer(build):
    run = Path(expect_success("train", build.path, *SMALL, "--epochs", "2", "--json").json["run"])
    again = expect_success("train", "--resume", run).err
    assert "is finished already, after 2 of 2 epochs." in again

    message = expect_refusal("train", "--resume", run, "--stop-after", "4")
    longer = expect_success(*remedy_of(message), "--quiet", "--json").json["run"]
    assert read_result(Path(longer)).epochs == 4
    assert read_result(run).epochs == 2


def test_warm_up_of_every_epoch_prints_working_remedy(build):
    loud = [word for word in SMALL if word != "--quiet"]
    words = ["train", build.path, *loud, "--set", "training.epochs=1"]
    outcome = expect_success(*words, "--set", "schedule.warmup_epochs=1")
    remedy = re.search("warm-up takes every epoch; (--set [^ ]+) skips it", outcome.err)[1]
    assert "warm-up takes every epoch" not in expect_success(*words, *remedy.split()).err


def test_a_model_key_given_as_a_parameter_is_corrected(home, tmp_path):
    graphs = [{"x": np.ones((3, 2)), "edge_index": np.array([[0, 1], [1, 2]])}] * 10
    folder = tmp_path / "mols"
    folder.mkdir()
    (folder / "nodes.csv").write_text(
        "graph,node,a\n" + "".join(f"{g},{n},1\n" for g in range(10) for n in range(3))
    )
    (folder / "edges.csv").write_text(
        "graph,source,target\n" + "".join(f"{g},0,1\n{g},1,2\n" for g in range(10))
    )
    (folder / "graphs.csv").write_text("graph,y\n" + "".join(f"{g},{g % 2}\n" for g in range(10)))
    assert graphs
    expect_success("build", "graphs", "--name", "mols", "--archive", folder, "-q")
    message = expect_refusal("train", "mols", "--k", "16")
    assert "kmip-data train mols --set model.attention.k=16\n" in message


def test_index_past_the_end_is_refused(build):
    dataset = kmip_data.open(build.path, "train")
    with raises(IndexError, naming=[1000, "train", len(dataset)]):
        dataset[1000]


def test_feature_and_regression_columns_take_names_and_units():
    weight = feature_column("node/weight", ("kg",), "weight of each atom")
    assert (weight.key, weight.attribute) == ("node/weight", "weight")
    target = regression_column("graph/y", "gap", unit="eV")
    assert (target.attribute, target.presented, target.finite) == ("y", "float32", False)


def test_remedies_for_a_finished_run_do_not_change_its_keys(build):
    from kmip_data.models.training.run.finished_run import open_run

    run = expect_success("train", build.path, *SMALL, "--epochs", "1", "--json").json["run"]
    opened = open_run(run)
    with opened.load_module() as module:
        error = training_memory_error(RuntimeError("out of memory"), module, opened.data)
        assert error.steps == [Setting(device="cpu"), "use a machine with more memory"]
        steps = module.divergence_error("The loss is nan").steps
        assert steps == [Command("kmip-data", "verify", build.path)]


@pytest.mark.parametrize("command", ["evaluate", "predict"])
def test_a_run_whose_build_was_replaced_prints_a_working_remedy(build, command):
    run = expect_success("train", build.path, *SMALL, "--epochs", "1", "--json").json["run"]
    shutil.rmtree(build.path)
    learnable_build(build.path, seed=1)
    message = expect_refusal(command, run)
    remedy = remedy_of(message)
    assert remedy[:4] == [command, run, "--dataset", str(build.path)]
    expect_success(*remedy)


def test_split_parameters_among_record_parameters_are_refused(home, tmp_path):
    (tmp_path / "scan.txt").write_text("0 0 0\n1 1 1\n")
    with raises(UsageError, naming="split_rule"):
        build_own(
            "points", "mine", {"path": tmp_path}, parameters={"split_rule": "random"}, home=home
        )


def test_attention_without_key_dim_splits_dim_among_the_heads():
    assert KMIPAttention(8, heads=2, k=3).query.out_features == 8
    with pytest.raises(UsageError):
        KMIPAttention(9, heads=2, k=3)


def test_builds_of_one_name_are_listed_by_their_differences(make_build):
    for number in (1, 2):
        parameters = {f"equal{n}": 7 for n in range(8)} | {"k": 4, "zone": number}
        make_build(f"s3dis-{number}", parameters=parameters)
    message = expect_refusal("info", "s3dis", "--k", "4")
    assert "s3dis-1: zone=1, built 20" in message
    assert "equal" not in message
    expect_success(*remedy_of(message))


def test_missing_city_build_prints_build_command(home):
    with pytest.raises(UsageError) as caught:
        CityNetwork("rome")
    assert caught.value.message == f"There is no city called 'rome' in {home / 'built'}."
    (step,) = caught.value.steps
    assert str(step).startswith("kmip-data build city --name rome --place ")
    with raises(UsageError, steps="kmip_data.CityNetwork('helsinki')"):
        CityNetwork("helsinkii")


def test_a_misspelled_module_attribute_suggests_the_nearest_name():
    with raises(AttributeError, naming="kmip_data.PeptidesFunc"):
        _ = kmip_data.PeptidesFnc
    with raises(AttributeError, naming="kmip_data.models.KMIPAttention"):
        _ = kmip_data.models.KMIPAtention
    assert not hasattr(kmip_data, "__wrapped__")


def test_library_warnings_are_not_shown_to_the_user():
    code = (
        "import sys, warnings, kmip_data.cli.main as main\n"
        "def run(args):\n"
        "    for kind in (FutureWarning, DeprecationWarning):\n"
        "        warnings.warn('torch.jit.script', kind)\n"
        "    return 0\n"
        "main.run_command_line = run\n"
        "main.main()\n"
    )
    assert python("-c", code).err == ""


#: Content of a table -> target of its build, and words of the error.
TABLES = {
    "smiles,y\nCCO,0\nC1CC(,1\nCCN,1\nN(,0\n": (
        "y",
        """\
2 rows are not molecules.
  found: a.csv, line 3: RDKit refuses 'C1CC(': it is not a SMILES. a.csv, line 5: \
RDKit refuses 'N(': it is not a SMILES.
  remedy: repair or remove the rows, or leave such rows out
  next: kmip-data build graphs --name a --archive a.csv --set label=y --set on_error=skip
""",
    ),
    'smiles,y\nCCO,0\n"CCN,1\nCCC,0\n': ("y", "a.csv, line 3: a quote"),
    "": ("y", "a.csv is empty.\n"),
    "smiles,toxic\nCCO,0\nCCN,1\n": (
        "toxi",
        "  next: kmip-data build graphs --name a --archive a.csv --set label=toxic\n",
    ),
    "structure,toxic\nCCO,0\nCCN,1\n": (
        "toxic",
        "  next: kmip-data build graphs --name a --archive a.csv --set label=toxic --set smiles=structure\n",
    ),
}


@pytest.mark.parametrize("content", TABLES)
def test_an_unreadable_table_prints_the_command_to_type(home, tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(content)
    label, words = TABLES[content]
    line = ("build", "graphs", "--name", "a", "--archive", "a.csv")
    assert words in expect_refusal(
        *line, "--set", f"label={label}", code=2 if label == "toxi" else 4
    )

    message = expect_refusal("build", "a.csv")
    assert f"remedy: build a dataset from it\n  next: kmip-data {' '.join(line)}\n" in message


def test_a_build_warns_of_parts_without_a_class(home, tmp_path):
    table = tmp_path / "a.csv"
    table.write_text("smiles,y\n" + "".join(f"CCO,{row < 3:d}\n" for row in range(20)))
    line = ("build", "graphs", "--name", "a", "--archive", table, "--set", "label=y", "-q")
    text = expect_success(*line, "--set", "picture=no").out
    assert re.search(r"warning +test has no example of 1; try --split-rule stratified\n", text)
    assert not (find_build("a", home=Home(home)).path / "preview.png").exists()

    # Of two rows of a class none helps, and a given split is meant.
    for column in ("", "parts"):
        rows = "".join(
            f"CCO,{row < 2:d},{('train', 'val', 'test')[row % 3]}\n" for row in range(20)
        )
        table.write_text(f"smiles,y,{column or 'note'}\n{rows}")
        text = expect_success(
            *line, "--name", f"two{column}", "--split-rule", column or "random"
        ).out
        assert " has no example of 1\n" in text
        assert "stratified" not in text

    table.write_text("smiles\n" + "CCO\n" * 20)
    text = expect_success("build", "graphs", "--name", "b", "--archive", table, "-q").out
    assert "digest" not in text
    assert "Next: kmip-data predict RUN --dataset b\n" in text


def test_a_build_with_an_empty_part_names_a_remedy_that_trains(home, tmp_path):
    table = tmp_path / "a.csv"
    rows = "".join(f"CCO,{row % 2},{'train' if row < 9 else 'test'}\n" for row in range(12))
    table.write_text(f"smiles,y,split\n{rows}")
    line = ("build", "graphs", "--archive", table, "--set", "label=y", "-q")
    text = expect_success(*line, "--name", "a", "--set", "val_fraction=0").out
    step = (
        "write val into some train rows of the column 'split' and build again, or redraw all parts"
    )
    assert re.search(rf"warning +val is empty; {step}; split_rule='random'\n", text)
    assert "Next: kmip-data preview a\n" in text
    training = ("train", "a", "--epochs", "1", *SMALL)
    message = expect_refusal(*training)
    assert f"remedy: {step}\n" in message
    assert shlex.join(map(str, [*training, "--split-rule", "random"])) in message

    # The user's test rows are still the test rows.
    table.write_text(table.read_text().replace("train", "val", 3))
    expect_success(*line, "--name", "a")
    expect_success(*training)
    build = find_build("a", home=Home(home))
    assert {part: sizes.graphs for part, sizes in build.card.splits["split"].parts.items()} == {
        "train": 6,
        "val": 3,
        "test": 3,
    }

    table.write_text("smiles,y\nCCO,1\nCCC,0\n")
    text = expect_success(*line, "--name", "b").out
    assert "val is empty; add graphs to the files: a split needs 3\n" in text

    # Masks have no column of names.
    folder = tmp_path / "masks"
    folder.mkdir()
    (folder / "edges.csv").write_text("u,v\n0,1\n1,2\n2,3\n")
    masks = "".join(f"{node},{node % 2},{node < 2},{node > 1}\n" for node in range(4))
    (folder / "nodes.csv").write_text(f"id,y,train_mask,test_mask\n{masks}")
    text = expect_success(
        "build", "graphs", "--archive", folder, "--name", "c", "-q", "--set", "val_fraction=0"
    ).out
    assert "val is empty; put some train nodes into val in the files and build again, " in text


def test_a_suggested_option_replaces_the_typed_one(build, home, tmp_path):
    expect_success("train", "clouds", *SMALL, "--epochs", "1", "--name", "r", "--home", home)
    line = ("predict", "r", "--dataset", "clouds", "--output")
    message = expect_refusal(*line, tmp_path / "x.xlsx", "--home", home)
    assert message.count("--output") == 1
    assert f"--output {tmp_path / 'x.npz'}\n" in message

    # A dataset without its option, which is also the beginning of the run.
    message = expect_refusal("predict", "clouds/sage/r", "clouds", "--home", home)
    assert f"next: kmip-data predict clouds/sage/r --home {home} --dataset clouds\n" in message
    expect_success(*shlex.split(message.partition("next: kmip-data ")[2]))


def test_advice_about_options_is_a_whole_command(build, home, tmp_path):
    line = ("train", "clouds", *SMALL, "--epochs", "1")
    message = expect_refusal(*line, "--set", "training.metric=mae")
    assert "remedy: with none, the targets select it\n" in message
    pattern = r"next: kmip-data (.* --set training.metric=none)\n"
    expect_success(*shlex.split(re.search(pattern, message)[1]))
    for option in (["--neighbor-sampling", "5,5"], ["--neighbor-sampling=5,5"]):
        message = expect_refusal(*line, *option)
        assert f"next: kmip-data {shlex.join(line)}\n" in message
    message = expect_refusal(*line, "--variant", "none")
    assert f"next: kmip-data {shlex.join(line)}\n" in message

    table = tmp_path / "a.csv"
    table.write_text("source,target\n0,1\n1,2\n")
    message = expect_refusal("build", "graphs", "--sample", "--name", "a", "--archive", table)
    command = message.partition("next: kmip-data ")[2]
    assert command == f"build graphs --name a --archive {table}\n"
    expect_success(*shlex.split(command), "-q")


@pytest.mark.parametrize("damage", ["cut", "edited", "empty"])
def test_the_remedy_for_a_broken_configuration_restores_it(build, damage):
    run = Path(expect_success("train", build.path, *SMALL, "--epochs", "1", "--json").json["run"])
    config = run / "config.toml"
    content = config.read_bytes()
    changes = {"cut": content[:99], "edited": content + b"plugins = ['a.py']\n", "empty": b""}
    config.write_bytes(changes[damage])
    command = expect_refusal("verify", run, code=1).partition("next: kmip-data ")[2]
    assert expect_success(*shlex.split(command), "--json").json["ok"]
    assert config.read_bytes() == content
    assert (run / "config.toml.moved").read_bytes() == changes[damage]


WITHOUT_CONFIGURATION = [("verify",), ("evaluate",), ("explore",), ("push", "a"), ("report",)]


@pytest.mark.parametrize("line", WITHOUT_CONFIGURATION, ids=lambda line: line[0])
def test_the_remedy_for_a_run_without_configuration_restores_it(build, tmp_path, line):
    run = Path(expect_success("train", build.path, *SMALL, "--epochs", "1", "--json").json["run"])
    copy = shutil.copytree(run, tmp_path / "copy of a run")
    (copy / "config.toml").unlink()
    command, *arguments = line
    message = expect_refusal(command, copy, *arguments, code=1 if command == "verify" else 2)
    assert "content differs" not in message
    remedy = message.partition("next: kmip-data ")[2]
    assert expect_success(*shlex.split(remedy), "--json").json["ok"]
    assert (copy / "config.toml").read_bytes() == (run / "config.toml").read_bytes()


@pytest.mark.parametrize("path", ["card", "card/a", "card/a/b"])
def test_a_path_through_a_file_is_answered(home, tmp_path, path):
    (tmp_path / "card").write_text("mine")
    with pytest.raises(UsageError) as error:
        kmip_data.open(tmp_path / path / "x")
    (command,) = error.value.steps
    expect_success(*command.words[1:])
    expect_refusal("verify", tmp_path / path / "x")


def test_a_password_on_the_command_line_is_not_printed():
    for address in ("https://h/a?token=abcdef", "https://me:pw@h/a", "https://h/a"):
        error = UsageError("No answer.", steps=["later", SAME_AGAIN])
        steps = TypedLine(["pull", address], "kmip-data", root).steps(error)
        command = Command("kmip-data pull", address)
        assert steps == (["later", command] if address == "https://h/a" else ["later"])


def test_an_unlabelled_record_in_the_picture_has_no_class(home, tmp_path):
    """The middle record is drawn: it had the name of the last class, or ended in an IndexError."""
    table = tmp_path / "a.csv"
    table.write_text("smiles,y\nCCO,1\nCCN,\nCCC,0\n")
    expect_success("build", "graphs", "--name", "a", "--archive", table, "--set", "label=y", "-q")
    picture = tmp_path / "a.png"
    expect_success("preview", "a", "--records", "1", "--output", picture)
    assert picture.is_file()


def test_sdf_names_the_command_that_writes_a_table(tmp_path, home, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chem = pytest.importorskip("rdkit.Chem")
    with chem.SDWriter("my drugs.sdf") as writer:
        for number, smiles in enumerate(["CCO", "c1ccccc1", "CCN", "CCCl", "CC=O"] * 2):
            molecule = chem.MolFromSmiles(smiles)
            molecule.SetProp("toxic", ("no", "yes")[number % 2])
            writer.write(molecule)
    words = ["build", "graphs", "--name", "drugs", "--set", "label=toxic", "--archive"]
    message = expect_refusal(*words, "my drugs.sdf", code=4)
    convert = re.search(r"next: (python -c .*)\n", message)[1]
    subprocess.run([sys.executable, *shlex.split(convert)[1:]], check=True)
    outcome = expect_success(*words, "my drugs.csv", "-q", "--json")
    assert outcome.json["counts"]["graphs"] == 10
    again = subprocess.run(
        [sys.executable, *shlex.split(convert)[1:]], check=False, capture_output=True
    )
    assert b"FileExistsError" in again.stderr, "a table that exists is not replaced"


def test_rows_without_a_usable_smiles_are_skipped_and_counted(tmp_path, home):
    rows = [
        "CCO,no",
        ",yes",
        '"  ",no',
        "é,no",
        "C(,yes",
        f"{'C' * 10_001},yes",
        "CCN,yes",
        "CCC,no",
        "CCCC,yes",
    ]
    table = tmp_path / "m.csv"
    table.write_text("\n".join(["smiles,toxic", *rows]))
    words = ["build", "graphs", "--name", "m", "--archive", table, "--set", "label=toxic"]
    message = expect_refusal(*words, code=4)
    assert "m.csv, line 3: 'smiles' is empty" in message
    outcome = expect_success(*shlex.split(message.partition("next: kmip-data ")[2]))
    assert re.search("skipped +5 records\n +000001: m.csv, line 3: 'smiles' is empty", outcome.out)
    skipped = find_build("m", home=Home(home)).card.statistics["skipped"]
    assert [key for key, _ in skipped] == [f"{row:06d}" for row in (1, 2, 3, 4, 5)]


def test_two_input_files_are_refused_and_one_folder_is_suggested(home, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("nodes.csv").write_text("node,age\n1,20\n2,30\n")
    Path("b.csv").write_text("source,target\n1,2\n")
    step = "remedy: copy them into a folder or zip, and pass it alone\n  next: "
    for words in (
        ["--archive", "nodes.csv", "--archive", "b.csv"],
        ["--name", "x", "--archive", "nodes.csv", "--archive", "b.csv"],
        ["--archive", "nodes.csv", "b.csv"],
        ["nodes.csv", "b.csv"],
    ):
        message = expect_refusal("build", "graphs", *words)
        assert step in message
        assert "needs a name" not in message
    Path("x").mkdir()
    Path("nodes.csv").rename("x/nodes.csv")
    Path("b.csv").rename("x/b.csv")
    assert (
        expect_success("build", "graphs", "--name", "x", "--archive", "x", "--json", "-q").json[
            "counts"
        ]["nodes"]
        == 2
    )


def test_new_data_without_targets_are_predicted_by_the_newest_run_of_their_home(user, monkeypatch):
    expect_success("train", "assay", "--model", "gcn", *TINY, "--name", "two")
    (user / "new.csv").write_text("smiles\n" + "CCO\nCCN\n" * 6)
    words = ["build", "graphs", "--archive", "new.csv", "--like", "assay", "-q", "--name"]
    expect_success(*words, "new")
    home = user / "home"
    advised = remedy_of(expect_refusal("train", "new"))
    assert advised == ["predict", f"{home}/runs/assay/gcn/two", "--dataset", "new"]
    assert expect_success(*advised, "--json").json["rows"] == 12

    monkeypatch.setenv("KMIP_DATA_HOME", str(user / "default"))
    out = expect_success(*words, "newer", "--home", home).out
    step = shlex.split(out.rpartition("Next: kmip-data ")[2])
    assert step[:4] == ["predict", "--home", str(home), "assay/gcn/two"]
    expect_success(*step)
    shutil.rmtree(home / "runs")
    message = expect_refusal("train", "new", "--home", home)
    assert f"next: kmip-data predict --home {home} RUN --dataset new\n" in message


def test_a_missing_file_suggests_the_nearest_name(tmp_path):
    (tmp_path / "assay.csv").write_text("smiles,toxic\n")
    line = ["build", "graphs", "--name", "q", "--archive", tmp_path / "asay.csv"]
    message = expect_refusal(*line)
    assert remedy_of(message)[-1] == f"{tmp_path}/assay.csv"
    assert "Did you mean" not in expect_refusal("sweep", tmp_path / "nothing.toml")


def test_a_word_is_a_name_whatever_the_working_directory_has(user):
    other = str(learnable_build(user / "other/clouds").path)
    for name in ("cora", "assay", "one", "lost"):
        learnable_build(user / name)
        if name != "lost":  # a command that reads it fails
            (user / name / "card.json").write_text("{}")
    (user / "one/config.toml").write_text("[")

    commands = ["info NAME", "verify NAME", f"diff NAME {other}", "encode NAME lappe2"]
    commands += ["export NAME", "preview NAME --output a.png", "push NAME copy"]
    commands += ["explore NAME --output a.html --no-open", f"train NAME {shlex.join(TINY)}"]
    commands += ["sweep --dataset NAME --model gcn --dry-run", "predict one --dataset NAME"]
    commands += ["build graphs --name new --archive assay.csv --like NAME --dry-run"]
    for command in commands:
        # 1. The name of a build of the home means this build.
        differs = command.startswith("diff")
        assert kmip(*shlex.split(command.replace("NAME", "assay", 1))).code == differs, command
        # 2. A word that names nothing is refused, with the path in its place.
        message = expect_refusal(*shlex.split(command.replace("NAME", "lost", 1)))
        assert f"  next: kmip-data {command.replace('NAME', './lost', 1)}\n" in message
        # 3. The path means the folder.
        assert kmip(*shlex.split(command.replace("NAME", "./assay", 1))).code == 4, command

    outcome = expect_success("info", "cora")
    assert outcome.out.startswith("cora: ")
    assert outcome.err == "cora is taken as a name; the folder is ./cora\n"
    for words in (("verify", "cora"), ("diff", "cora", other)):
        expect_refusal(*words)
    with raises(UsageError, steps=Command("kmip-data build cora")):
        kmip_data.open("cora")
    assert expect_success("evaluate", "one", "-q").out

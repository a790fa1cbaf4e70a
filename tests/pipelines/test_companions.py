"""Files next to clouds: legends, tables of the clouds, lists of parts, and texts that are no cloud."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.cli import expect_refusal, expect_success, kmip, python
from support.raises import raises

import kmip_data
from kmip_data.errors import DamagedInput, OpenQuestions
from kmip_data.pipelines.companion_files.companions import NO_TABLE, Companions, find_companions
from kmip_data.pipelines.companion_files.item_columns import labels_of_items
from kmip_data.pipelines.companion_files.legends import find_legend
from kmip_data.pipelines.companion_files.part_lists import ItemNames
from kmip_data.pipelines.datasets.graphs.findings import Notices
from kmip_data.pipelines.domains.cloud_columns import CloudOptions
from kmip_data.pipelines.domains.text_clouds import values_of_column

NAMES = {0: "floor", 1: "high wall", 7: "door"}
LEGENDS = {
    "tabs": ("legend.txt", "7\tdoor\r\n0\tfloor\r\n1\thigh wall\r\n"),
    "header": ("classes.csv", "code,name\n0,floor\n1,high wall\n7,door"),
    "quotes": ("classes.csv", '"0";"floor"\n"1";"high wall"\n"7";"door"\n'),
    "JSON": ("a.json", '{"0": "floor", "1": "high wall", "7": "door"}'),
}
NO_LEGENDS = {
    "numbers": ("a.txt", "0 1\n1 2\n"),
    "points": ("a.txt", "0 1 2\n1 2 3\n"),
    "repeated codes": ("a.csv", "0,floor\n0,wall\n"),
    "repeated names": ("a.csv", "0,floor\n1,floor\n"),
    "texts of rows": ("a.csv", "x,y,z,kind\n0,1,5,tree\n1,2,6,tree\n"),
    "one row": ("a.txt", "0 floor\n"),
    "text": ("README.txt", "Two floors\nof a house.\n"),
    "binary": ("a.txt", b"\0\1"),
}


def write(folder: Path, files: dict[str, str | bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("case", [*LEGENDS, *NO_LEGENDS])
def test_a_legend_has_a_column_of_distinct_codes_and_one_of_names(tmp_path, case):
    name, content = {**LEGENDS, **NO_LEGENDS}[case]
    write(tmp_path, {name: content})
    companions = find_companions(tmp_path, [name], ["b.ply"], CloudOptions())
    assert companions.legends == ({name: NAMES} if case in LEGENDS else {})
    assert (name in companions.ignored) == (case in NO_LEGENDS)


def test_a_legend_names_all_labels_or_the_given_classes():
    legends = {"a.txt": {5: "x", 6: "y"}, "b.txt": {-1: "none", **NAMES}}
    assert find_legend(legends, {0, 7}) == ("b.txt", NAMES)
    assert find_legend(legends, {0, 2}) is find_legend(legends, ()) is None


def test_an_item_is_found_by_each_of_its_names_that_no_other_has():
    assert ItemNames(["a/IMG_1.JPG"]).find("img_1.jpg") == "a/IMG_1.JPG"
    assert ItemNames(["b/n.txt", "b/N.txt"]).find("n") is None
    names = ItemNames(["a/x.txt", "b/x.txt", "b/y.v2.npy", "Area_1/room"])
    for name in ("b/y.v2.npy", "y.v2.npy", "y.v2", "data/b/y.v2.npy", " ./b/y.v2 ", "b\\y.v2"):
        assert names.find(name) == "b/y.v2.npy"
    assert names.find("a/x") == "a/x.txt"
    assert names.find("x") is names.find("z") is names.find("") is None
    assert names.find("room") == "Area_1/room"


def values_of(companions: Companions, column: str) -> dict[str, object]:
    """Value of a column for each item that has one."""
    values = companions.by_item(values_of_column(companions.column(column), Notices()))
    return {item: value for item, value in values.items() if value is not None}


POINTS = "".join(f"{row} {row * 7 % 5} {row * 3 % 7}\n" for row in range(12))
CLOUDS = {f"{number}.txt": POINTS for number in range(12)}
#: Content of a file besides twelve clouds ``0.txt`` … -> what it is, and a value of its columns.
COMPANIONS = {
    "table": ("t.csv", "file,kind\n" + "".join(f"{n},k{n}\n" for n in range(12)), ("kind", "k3")),
    "table of all names": ("t.csv", "kind;file\n" + "".join(f"{n};x/{n}.txt\n" for n in range(12)), ("kind", 3)),
    "pairs": ("t.txt", "".join(f"{n} k{n}\n" for n in range(12)), ("1", "k3")),
    "numbers with names": ("t.csv", "id,age\n" + "".join(f"{n},{n * 5}\n" for n in range(12)), ("age", 15)),
    "a part of the clouds": ("t.csv", "id,kind\n3,a\n5,b\n", ("kind", "a")),
    "table that looks like a legend": ("t.csv", "id,name,by\n3,ash,x\n5,oak,y\n", ("name", "ash")),
    "list": ("train_list.txt", "3.txt\n5\n", "part"),
    "list of JSON": ("test.json", '["clouds/3", "clouds/5.txt"]', "part"),
    "lists of JSON": ("splits.json", '{"test": ["3.txt", 5], "val": []}', "part"),
    "readme": ("README.txt", "Twelve scans\nof 2019, by us.\n", "ignored"),
    "notes": ("notes.json", '{"by": ["us"]}', "ignored"),
    "legend": ("legend.txt", "0 floor\n1 wall\n", "legend"),
    "cloud": ("x.txt", POINTS, None),
    "cloud with names": ("x.txt", "x y z\n" + POINTS, None),
    "damaged cloud": ("x.txt", POINTS + "1 2\n", None),
    "cloud with texts": ("x.txt", "x y z kind\n" + POINTS.replace("\n", " tree\n"), None),
    "repeated names": ("t.txt", "file,x,y,z\n" + "1,2,3,4\n" * 9, None),
}  # fmt: skip


@pytest.mark.parametrize("case", COMPANIONS)
def test_a_file_next_to_clouds_is_what_its_values_say(tmp_path, case):
    name, content, expected = COMPANIONS[case]
    write(tmp_path, {**CLOUDS, name: content})
    clouds = [file for file in (*CLOUDS, name) if file.endswith(".txt")]
    companions = find_companions(tmp_path, [*CLOUDS, name], clouds, CloudOptions())
    assert companions.files == ({name} if expected else set())
    if isinstance(expected, tuple):
        column, value = expected
        assert companions.sources[column] == name
        assert values_of(companions, column)["3.txt"] == value
    elif expected == "part":
        part = "train" if "train" in name else "test"
        assert values_of(companions, "split") == dict.fromkeys(["3.txt", "5.txt"], part)
    elif expected == "ignored":
        assert companions.ignored == {name: NO_TABLE}
    elif expected == "legend":
        assert companions.legends == {name: {0: "floor", 1: "wall"}}


FORMS = {
    "CSV": lambda frame, path: frame.to_csv(f"{path}.csv", index=False),
    "CSV with semicolons": lambda frame, path: frame.to_csv(f"{path}.csv", index=False, sep=";"),
    "JSON": lambda frame, path: frame.to_json(f"{path}.json", orient="records"),
    "workbook": lambda frame, path: frame.to_excel(f"{path}.xlsx", index=False),
    "Parquet": lambda frame, path: frame.to_parquet(f"{path}.parquet"),
    "Feather": lambda frame, path: frame.to_feather(f"{path}.feather"),
}


@pytest.mark.parametrize("form", FORMS)
def test_tables_of_any_format_say_the_same(tmp_path, form):
    """Rows of the table are in any order."""
    clouds = [f"{number}.txt" for number in range(12)]
    write(tmp_path, dict.fromkeys(clouds, POINTS))
    rng = np.random.default_rng(len(form))
    numbers = rng.permutation(12)
    table = pd.DataFrame(
        {"id": numbers, "kind": [f"k{n % 3}" for n in numbers], "age": numbers / 4}
    )
    table.loc[2, "age"] = np.nan
    FORMS[form](table, tmp_path / "t")
    FORMS[form](pd.DataFrame({"code": [0, 2], "name": ["floor", "high wall"]}), tmp_path / "legend")
    files = sorted(path.name for path in tmp_path.iterdir())
    companions = find_companions(tmp_path, files, clouds, CloudOptions())
    assert companions.files == {*files} - {*clouds}
    assert not companions.ignored
    assert [*companions.legends.values()] == [{0: "floor", 2: "high wall"}]
    assert values_of(companions, "kind") == {f"{n}.txt": f"k{n % 3}" for n in numbers}
    ages = {f"{n}.txt": n / 4 for n in numbers if n != numbers[2]}
    assert values_of(companions, "age") == ages


def test_each_sheet_of_a_workbook_is_used_or_ignored(tmp_path):
    write(tmp_path, {**CLOUDS, "~$t.xlsx": b"lock"})
    with pd.ExcelWriter(tmp_path / "t.xlsx") as book:
        pd.DataFrame({"file": range(12), "kind": [*"ab"] * 6}).to_excel(
            book, sheet_name="kinds", index=False
        )
        pd.DataFrame({"a": [1.5], "b": [2.5]}).to_excel(book, sheet_name="sums", index=False)
    files = [*CLOUDS, "t.xlsx", "~$t.xlsx"]
    companions = find_companions(tmp_path, files, [*CLOUDS], CloudOptions())
    assert companions.ignored == {"t.xlsx, sums": NO_TABLE}
    assert values_of(companions, "kind")["3.txt"] == "b"
    pd.DataFrame({"file": [3, 3, 4], "kind": [*"aba"]}).to_csv(tmp_path / "t.csv", index=False)
    (reason,) = find_companions(tmp_path, ["t.csv"], [*CLOUDS], CloudOptions()).ignored.values()
    assert reason == "'file' names 2 files in 3 rows"


def test_a_list_names_one_item_with_each_name_and_a_table_has_a_header_of_its_own(tmp_path):
    write(
        tmp_path, {"a/x.ply": "", "b/x.ply": "", "train.txt": "x\n", "t.csv": "file,label\na/x,1\n"}
    )
    items = ["a/x.ply", "b/x.ply"]
    table = find_companions(tmp_path, ["t.csv"], items, CloudOptions(header="no"))
    assert values_of(table, "label") == {"a/x.ply": 1}
    assert find_companions(tmp_path, ["train.txt"], items, CloudOptions()).ignored.keys() == {
        "train.txt"
    }
    write(tmp_path, {"train.txt": "a/x\nx\n"})
    with raises(DamagedInput, naming="train.txt"):
        find_companions(tmp_path, ["train.txt"], items, CloudOptions())
    write(tmp_path, {"t.csv": "file,label,class\na/x,1,u\nb/x,2,v\n"})
    with pytest.raises(OpenQuestions):
        labels_of_items(None, items, find_companions(tmp_path, ["t.csv"], items, CloudOptions()))


def test_without_a_cloud_no_file_is_a_companion(tmp_path):
    write(tmp_path, {"a.txt": "hello\n", "b.txt": "0 floor\n1 wall\n"})
    assert not find_companions(
        tmp_path, ["a.txt", "b.txt"], ["a.txt", "b.txt"], CloudOptions()
    ).files


@pytest.fixture
def scans(tmp_path, monkeypatch):
    """Twelve clouds, their table, a legend of the points' codes and a text."""
    monkeypatch.setenv("KMIP_DATA_HOME", str(tmp_path / "home"))
    header = "//X Y Z Classification\n"
    files = {}
    for number in range(12):
        rows = POINTS.splitlines()
        files[f"scan_{number}.txt"] = header + "".join(
            f"{row} {n % 3 * 2}\n" for n, row in enumerate(rows)
        )
    table = "".join(
        f"scan_{n},site {n % 4},{['low', 'high'][n % 2]},{n + 0.5}\n" for n in range(12)
    )
    files["table.csv"] = "file,site,height,age\n" + table
    files["legend.txt"] = "0 floor\n2 wall\n4 door\n"
    files["README.txt"] = "Scans of a house.\n"
    write(tmp_path / "scans", files)
    return tmp_path / "scans"


def build(scans: Path, name: str, *options: str):
    words = ("build", "points", "--name", name, "--archive", scans, "--k=3", "--jobs=1", "-q")
    return kmip(*words, "--set=picture=false", *options)


def test_points_have_a_legend_and_clouds_a_table(scans):
    done = build(scans, "own")
    assert done.code == 0, done.err
    data = kmip_data.open("own")
    assert len(data) == 12
    assert tuple(data.card.class_names) == ("floor", "wall", "door")
    assert data[5].y.tolist() == [0, 1, 2] * 4
    assert f"README.txt: {NO_TABLE}" in done.out
    assert "the column 'Classification', by its name; none: label='none'" in done.out

    # Labels and groups of clouds.
    assert build(scans, "sites", "--set=label=height", "--set=group=site").code == 0
    data = kmip_data.open("sites")
    assert tuple(data.card.class_names) == ("high", "low")
    number = {key: int(key.removeprefix("scan_").removesuffix(".txt")) for key in data.keys}
    assert [int(item.y) for item in data] == [1 - number[key] % 2 for key in data.keys]
    parts = {part: kmip_data.open("sites", part).keys for part in ("train", "val", "test")}
    sites = {part: {number[key] % 4 for key in keys} for part, keys in parts.items()}
    assert all(sites.values())
    assert sum(map(len, sites.values())) == 4  # no site lies in two parts

    # A column of numbers is a regression, also of blocks.
    assert build(scans, "ages", "--set=label=age").code == 0
    assert sorted(float(item.y) for item in kmip_data.open("ages")) == [n + 0.5 for n in range(12)]
    message = expect_refusal(
        "build", "points", "--name=own2", "--archive", scans, "--k=3", "--set=group=sites"
    )
    assert "'sites'" in message
    assert "--set group=site" in message


def test_a_table_above_clouds_is_read_and_one_that_names_none_is_explained(scans):
    """Its columns are proposed for a name like theirs, and the shift of positions is a line."""
    table = (scans / "table.csv").read_text()
    (scans / "table.csv").unlink()
    (scans.parent / "table.csv").write_text(table)
    done = build(scans, "own", "--set=label=height")
    assert "positions      from the lowest corner of each cloud\n" in done.out
    assert [int(item.y) for item in kmip_data.open("own")][:2] == [1, 0]

    words = ["build", "points", "--name=own", "--archive", str(scans), "--k=3", "--jobs=1", "-q"]
    message = expect_refusal(*words, "--set=label=heights", code=2)
    assert message.endswith("--set label=height\n")
    (scans / "table.csv").write_text(table.replace("scan_", "plot "))
    message = expect_refusal(*words, "--set=label=height", code=2)
    assert "table.csv" in message
    assert "'scan_0'" in message
    assert "next: kmip-data build points" in message
    expect_success(*shlex.split(re.search("next: kmip-data (.*)", message)[1]))


def test_a_table_in_another_encoding_is_asked_about(scans):
    """Also if its column is a label; the printed command builds."""
    table = (scans / "table.csv").read_text().replace("site,", "Höhe,", 1)
    for path in scans.glob("scan_*.txt"):
        points = path.read_text().replace("//X Y Z Classification", "ply").splitlines()[1:]
        header = "ply\nformat ascii 1.0\nelement vertex 12\n"
        header += "".join(f"property float {name}\n" for name in "xyzc") + "end_header\n"
        path.with_suffix(".ply").write_text(header + "\n".join(points) + "\n")
        path.unlink()
    (scans / "table.csv").write_bytes(table.encode("cp1252"))
    for label in ((), ("--set=label=height",)):
        message = build(scans, "trees", *label).err
        assert "table.csv, line 1" in message
        command = re.search("next: kmip-data (.*)", message)[1]
        assert "--set encoding=cp1252" in command
    assert "table.csv: not used: Höhe, age;" in expect_success(*shlex.split(command)).out


def test_lists_and_a_column_of_parts_are_the_split(scans):
    (scans / "table.csv").unlink()
    write(
        scans,
        {
            "train.txt": "".join(f"scan_{n}\n" for n in range(8)),
            "test.txt": "scan_9.txt\nscan_8\n",
            "notes.csv": 'who,said\nA,"yes" twice\n',
        },
    )
    assert "val is 10% of train, at random" in build(scans, "lists").out
    sizes = {part: kmip_data.open("lists", part).keys for part in ("train", "val", "test")}
    assert [*map(len, sizes.values())] == [7, 1, 2]
    assert sizes["test"] == ["scan_8.txt", "scan_9.txt"]
    write(scans, {"val.txt": "scan_9\n"})
    message = build(scans, "twice").err
    assert "scan_9.txt" in message

    for name in ("train", "test", "val"):
        (scans / f"{name}.txt").unlink()
    rows = "".join(f"scan_{n},{['train', 'dev', 'test', ''][n % 4]}\n" for n in range(12))
    table = rows.replace("dev", "Validation").replace("train", "Training").replace("\n", ",dry\n")
    for name, content in {
        "split": "file,split\n" + rows,
        "Teil": "file,Teil,note\n" + table,
    }.items():
        write(scans, {"parts.csv": content})
        done = build(scans, name)
        assert done.code == 0, done.err
        sizes = [len(kmip_data.open(name, part)) for part in ("train", "val", "test")]
        assert sizes == [3, 3, 3]
        assert ("parts.csv: not used: note;" in done.out) == (name == "Teil")
    write(scans, {"parts.csv": content.replace("Validation", "fal")})
    message = build(scans, "typo").err
    assert "'fal'" in message
    command = re.search("next: kmip-data (.*)", message)[1]
    assert "not used: note;" in expect_success(*shlex.split(command)).out
    assert [len(kmip_data.open("typo", part)) for part in ("train", "val", "test")] == [10, 1, 1]


def test_new_clouds_are_built_like_earlier_ones(scans, tmp_path):
    """A description and a build give parameters and classes; labels may be missing or a subset."""
    folders = {"old": ["oak", "elm"], "subset": ["oak", "oak"], "bare": None}
    for folder, kinds in folders.items():
        files = {}
        for number in range(4):
            header = "x y z red kind\n" if kinds else "x y z red\n"
            texts = [f"{row} {n}" for n, row in enumerate(POINTS.splitlines())]
            if kinds:
                texts = [f"{text} {kinds[n % 2]}" for n, text in enumerate(texts)]
            files[f"{number}.txt"] = header + "\n".join(texts) + "\n"
        write(tmp_path / folder, files)
    description = tmp_path / "clouds.toml"
    common = ("-q", "--set=picture=false", "--jobs=1")
    settings = ("--k=3", "--set=feature=red/255", "--set=label=kind")
    words = ("build", "points", "--archive", tmp_path / "old", *common, *settings)
    done = expect_success(*words, "--dry-run", "--describe", description)
    assert "classes     elm,oak\n" in done.out
    assert (
        f"Next: kmip-data build points --name mine --archive {tmp_path / 'old'} --like" in done.out
    )
    assert not (tmp_path / "home/built").exists()
    expect_success(*shlex.split(re.search("Next: kmip-data (.*)", done.out)[1]))
    expect_success(*words, "--name=old")
    fields = kmip_data.open("old").card.schema_.column("node/x").fields

    for like in ("old", description):
        for folder in ("subset", "bare"):
            name = f"{folder}_{Path(like).stem}"
            words = ("build", "points", "--archive", tmp_path / folder, "--name", name, *common)
            expect_success(*words, "--like", like)
            item = kmip_data.open(name)[0]
            assert kmip_data.open(name).card.schema_.column("node/x").fields == fields
            assert item.edge_index.shape[1] == 3 * 12
            if folder == "bare":
                assert item.y is None
            else:
                assert item.y.tolist() == [1] * 12  # oak has its class of before
    expect_refusal("build", "graphs", "--archive", tmp_path, "--name=g", "--like=old")
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n")
    expect_success("build", "graphs", "--archive", tmp_path / "edges.csv", "--name=g", "-q")
    message = expect_refusal(
        "build", "points", "--archive", tmp_path / "bare", "--name=h", "--like=g"
    )
    assert "next: kmip-data info points\n" in message
    expect_success("info", "points")
    words = ("build", "points", "--archive", tmp_path / "bare", "--name=lost", *common)
    assert "'kind'" in expect_refusal(*words, *settings, code=4)


@pytest.mark.parametrize("recipe", ["points", "superpixels"])
def test_the_pipelines_of_clouds_and_pictures_import_alone(recipe):
    """In either order: both read companion files."""
    python("-c", f"import kmip_data.pipelines.datasets.{recipe}")

"""Misspelt names, options and keys: found before anything heavy is imported, with a hint that works."""

from __future__ import annotations

import json
import subprocess
import sys

from support.cli import kmip

from kmip_data.runtime.presence import install_command

#: Line -> what its error must say.
CASES = {
    "fetch s3diss": "Did you mean 's3dis'",
    "build s3diss --k 3": "Did you mean 's3dis'",
    "build s3dis --kk 3": "next: kmip-data build s3dis --help",
    "encode s3diss rwse3": "Did you mean 's3dis'",
    "verify s3diss": "Did you mean 's3dis'",
    "info s3diss": "Did you mean 's3dis'",
    "info nothing": "There is no dataset or build folder called 'nothing'.\n",
    "info s3dis --model gat2": "Did you mean 's3dis/gat'",
    "preview s3diss": "Did you mean 's3dis'",
    "preview helsinki --run foo": "There is no run called 'foo'",
    "explore helsinkii": "Did you mean 'helsinki'",
    "push s3diss ./x": "Did you mean 's3dis'",
    "train --dataset s3diss": "Did you mean 's3dis'",
    "train --dataset s3dis --kk 3": "next: kmip-data train --dataset s3dis --help",
    "train --dataset s3dis --model gat2": "expected: s3dis/exphormer, s3dis/gat,",
    "train --dataset s3dis --as txt": "Did you mean 'text'",
    "train --dataset s3dis --set foo=1": "next: kmip-data info DATASET --model MODEL",
    "train --dataset s3dis --set training.epochz=1": "Did you mean 'training.epochs'",
    "train --dataset s3dis --seeds x": "--seeds is not a list",
    "train --dataset s3dis --init-from foo": "There is no run called 'foo'",
    "train --resume foo": "There is no run called 'foo'",
    "evaluate foo": "There is no run called 'foo'",
    "predict foo --output x.npz": "There is no run called 'foo'",
    "sweep small-citys": "Did you mean 'small-cities'",
    "sweep small-cities --dataset helsinkii": "Did you mean 'helsinki'",
    "sweep small-cities --model gat2": "Did you mean 'city/gat'",
    "sweep small-cities --set foo=1": "There is no configuration key 'foo'",
    "report small-citys": "Did you mean 'small-cities'",
    "sweep small-cities --dataset helsinky": "Did you mean 'helsinki'",
    "sweep small-cities --set model.layer=3": "Did you mean 'model.layers'",
    "sweep small.toml": "The plan small.toml cannot be used",
    "report papercity": "Did you mean 'paper-city'",
    "report dataset": "Did you mean 'datasets'",
    "report small.toml": "The plan small.toml cannot be used",
    "report foo": "There is no sweep or run called 'foo'.\n",
    "analyze approximation foo": "There is no run called 'foo'",
    "analyze influence-of-k small-citys": "Did you mean 'small-cities'",
    "analyze foo": "There is no command called 'foo'",
    "bench train helsinkii": "Did you mean 'helsinki'",
    "bench train helsinki --model gat2": "Did you mean 'city/gat'",
    "bench foo": "There is no command called 'foo'",
    "remove nothing-here": "nothing-here",
}
#: Packages that take seconds to import, of which a misspelt name needs none.
HEAVY = ("torch", "torch_geometric", "numba", "scipy", "matplotlib", "lightning", "torchmetrics", "requests")
_RUN = f"""
import contextlib, io, json, sys
sys.modules.update(dict.fromkeys({HEAVY!r}))  # importing one of these is an error now
from kmip_data.cli.main import run
found = {{}}
for line in json.load(sys.stdin):
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors):
        found[line] = run(line.split()), errors.getvalue()
json.dump(found, sys.stdout)
"""


def test_misspelt_names_need_no_heavy_import(home, tmp_path):
    """Time is not asserted, but what takes it: each line took up to 7 s of CPU, and takes at most 0.5 s."""
    done = subprocess.run(
        [sys.executable, "-c", _RUN], input=json.dumps([*CASES]), capture_output=True, text=True,
        check=True, cwd=tmp_path,
    )  # fmt: skip
    found = json.loads(done.stdout)
    failed = [
        line for line, expected in CASES.items() if found[line][0] != 2 or expected not in found[line][1]
    ]
    assert not failed, "\n".join(f"{line}: {found[line]}" for line in failed)


def test_hints_are_commands_that_run(home):
    failed = {
        line: step
        for line in ("info helsinki --model gps-kmip", "list", "runs", "sweep --help", "build s3dis --help")
        if (step := kmip(*line.split())).code != 0
    }
    assert not failed
    assert "training.epochs" in kmip("info", "helsinki", "--model", "gps-kmip").out
    assert "--k " in kmip("build", "s3dis", "--help").out


def test_an_extra_is_installed_from_where_the_package_came(monkeypatch, tmp_path):
    (tmp_path / "setup.py").touch()
    clone, gone = tmp_path.as_uri(), (tmp_path / "gone").as_uri()
    cases = {
        json.dumps({"url": clone, "dir_info": {"editable": True}}): f"pip install -e '{tmp_path}[chem]'",
        json.dumps({"url": clone, "dir_info": {}}): f"pip install '{tmp_path}[chem]'",
        json.dumps({"url": gone, "dir_info": {}}): "pip install '.[chem]' in a clone",
        json.dumps({"url": "https://example.org/a.git", "vcs_info": {"vcs": "git"}}):
            "pip install 'kmip-data[chem] @ git+https://example.org/a.git'",
        "": "pip install 'kmip-data[chem]'",
    }  # fmt: skip
    failed = {}
    for origin, expected in cases.items():
        source = type("Distribution", (), {"read_text": lambda self, name, text=origin: text or None})
        monkeypatch.setattr("importlib.metadata.distribution", lambda name, source=source: source())
        if (found := install_command("chem")) != expected:
            failed[origin] = found
    assert not failed

"""Fingerprints of builds, trained weights and public names, to compare two trees.

``python tests/support/fingerprints.py write FILE`` runs the tree that this interpreter imports;
``… compare FILE`` does the same and prints what differs from FILE (exit 1). It takes several minutes.

- Builds: SHA-256 of every shard and split of Helsinki, all samples, and the real files in ``../shared/data``.
- Weights: SHA-256 of every tensor after two epochs of each model on Helsinki, on one thread.
- Public names of ``kmip_data`` and ``kmip_data.models``.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

SHARED = Path(os.environ.get("KMIP_DATA_TEST_FILES", Path(__file__).resolve().parents[3] / "shared" / "data"))
MODELS = "gps-kmip,gps-transformer,gps-performer,gps-bigbird,exphormer,gcn,gine,gat,gated-gcn"
SAMPLES = (
    "s3dis,shapenet-part,peptides-func,peptides-struct,pcqm-contact,cifar10,pascalvoc-sp,coco-sp,malnet-tiny"
)
REAL = {
    "indoor3d_sem_seg_hdf5_data_small.zip": "s3dis",
    "malnet_tiny_complete.tar.xz": "malnet-tiny",
    "peptides_func": "peptides-func",
    "osm/paris_trocadero.graphml": "city --name trocadero",
    "osm/paris_3e_11e.osm.pbf": "city --name marais",
}


def run(*arguments: str, home: Path) -> dict[str, object]:
    """Run one command with ``--json`` on one thread, and return its object."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "KMIP_DATA_HOME": str(home)}
    command = [sys.executable, "-m", "kmip_data", *arguments, "--json", "--quiet"]
    # Not in a checkout: Python would import the tree that lies there.
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(arguments)}: exit {done.returncode}\n{done.stderr}")
    found: dict[str, object] = json.loads(done.stdout)
    return found


def digests(build: Path) -> dict[str, str]:
    """Return the SHA-256 of every shard and split of a build, by its path in the folder."""
    files = sorted([*build.glob("shards/*.h5"), *build.glob("splits/*.h5")])
    return {str(path.relative_to(build)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def weights(folder: Path) -> str:
    """Return the SHA-256 over names and bytes of a run's tensors."""
    from safetensors.numpy import load_file

    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(folder / "model.safetensors").items()):
        digest.update(f"{name} {tensor.dtype} {tensor.shape}\n".encode() + tensor.tobytes())
    return digest.hexdigest()


def fingerprints() -> dict[str, object]:
    """Build and train everything in a home of its own, and return the digests."""
    found: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        orders = {"helsinki": "helsinki", "paris --sample": "paris --sample"}  # one graph each
        orders |= {f"{name} --sample": f"{name} --sample --limit 12" for name in SAMPLES.split(",")}
        for file, order in REAL.items():
            if (SHARED / file).exists():
                orders[f"{order.split()[0]} {file}"] = f"{order} --archive {SHARED / file}"
        for label, order in orders.items():
            found[f"build {label}"] = digests(Path(str(run("build", *order.split(), home=home)["path"])))
            print("build", label, file=sys.stderr)  # noqa: T201
        for model in MODELS.split(","):
            order = ["--dataset", "helsinki", "--model", model, "--epochs", "2", "--name", "run"]
            result = run("train", *order, home=home)
            found[f"weights {model}"] = weights(Path(str(result["run"])))
            print("weights", model, file=sys.stderr)  # noqa: T201
    import kmip_data.models

    return found | {"kmip_data": sorted(kmip_data.__all__), "models": sorted(kmip_data.models.__all__)}


def main(action: str, file: str) -> int:
    """Write the fingerprints, or print what differs from those of a file; return the exit code."""
    now = json.loads(json.dumps(fingerprints()))
    if action == "write":
        Path(file).write_text(json.dumps(now, indent=1, sort_keys=True) + "\n", "utf-8")
        return 0
    before = json.loads(Path(file).read_text("utf-8"))
    different = [name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)]
    print(*(f"different: {name}" for name in different), sep="\n")  # noqa: T201
    print(f"{len(before.keys() | now.keys()) - len(different)} equal, {len(different)} different")  # noqa: T201
    return bool(different)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

"""GraphGPS's 84 configurations: those that map, with their parameters, and why the others do not.

Counts are recorded in ``manifests/tables/graphgps-files.toml``. With ``KMIP_DATA_GRAPHGPS``, the
folder ``configs`` of a clone of rampasek/GraphGPS, the files themselves are read.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from pathlib import Path

import pytest
import torch
from support.cases import check_each
from support.shared import ROOT

from kmip_data.builds.home import Home
from kmip_data.errors import UsageError
from kmip_data.manifest import dataset_names
from kmip_data.models.network import build_model, count_parameters
from kmip_data.models.training.config.graphgps import read_graphgps
from kmip_data.models.training.config.presets import load_preset, preset_names, read_preset
from kmip_data.models.training.data.open_data import open_data
from kmip_data.models.training.optimizers import build_optimizer
from kmip_data.models.training.run.training_module import TrainingModule
from kmip_data.strict_model import read_shipped

FILES = read_shipped("tables", "graphgps-files")
REASONS = read_shipped("tables", "graphgps")["reasons"]
IDLE = read_shipped("tables", "graphgps")["idle"]
MAPPED = [name for name, entry in FILES.items() if "out" not in entry]
PAGE = ROOT / "docs" / "graphgps.md"
MARK = "<!-- files: written by `make docs-tables` -->\n"
#: Columns of nodes, outputs and columns of edges, as GraphGPS has them.
SIZES = {
    "coco-sp": (14, 81, 2),
    "pascalvoc-sp": (14, 21, 2),
    "pcqm-contact": (9, 1, 3),
    "peptides-func": (9, 10, 3),
    "peptides-struct": (9, 11, 3),
    "cifar10": (5, 10, 1),
    "mnist": (3, 10, 1),
    "malnet-tiny": (5, 5, None),
    "zinc": (1, 1, 1),
    "pattern": (3, 2, None),
    "cluster": (7, 6, None),
    "ogbg-molhiv": (9, 1, 3),
    "ogbg-molpcba": (9, 128, 3),
    "pcqm4mv2": (9, 1, 3),
    "actor": (932, 5, None),
    "chameleon": (2325, 5, None),
    "squirrel": (2089, 5, None),
    **dict.fromkeys(("cornell", "texas", "wisconsin"), (1703, 5, None)),
}


def path_of(name: str) -> Path:
    folder = os.environ.get("KMIP_DATA_GRAPHGPS")
    if not folder:
        pytest.skip("KMIP_DATA_GRAPHGPS is not set: GraphGPS's configurations are not here")
    return Path(folder) / f"{name}.yaml"


def counted(config, dataset: str) -> int:
    columns, outputs, edges = SIZES[dataset]
    sizes = {"in_channels": columns, "out_channels": outputs, "edge_channels": edges}
    with torch.device("meta"):
        return count_parameters(build_model(config.model, **sizes))


def test_61_of_84_map_and_the_others_have_a_reason() -> None:
    assert (len(FILES), len(MAPPED)) == (84, 61)
    assert {entry["out"] for entry in FILES.values() if "out" in entry} <= set(REASONS)


def test_presets_have_the_parameters_of_their_files() -> None:
    """Equal to the published ones, too, but for what the notes of the page say."""
    differences = {}
    for name in preset_names():
        source = re.search(
            r"^GraphGPS: .*configs/(GPS/.*)\.yaml", read_preset(*name.split("/")).source
        )
        if source is None:
            continue
        config = load_preset(*name.split("/"))
        entry = FILES[source[1]]
        assert counted(config, entry["dataset"]) == entry["parameters"], name
        if "published" in entry:
            model = config.model
            row = model.hidden_dim - sum(encoding.width for encoding in model.positional_encodings)
            outputs = model.hidden_dim + 1 if entry["dataset"] == "pattern" else 0
            more = row if model.node_encoder == "atom" else outputs
            differences[source[1]] = entry["parameters"] - entry["published"] - more
    assert len(differences) >= 4
    assert set(differences.values()) == {0}


def check_file(name: str) -> None:
    path, entry = path_of(name), FILES[name]
    if "out" in entry:
        with pytest.raises(UsageError, match=re.escape(REASONS[entry["out"]])):
            read_graphgps(path)
        return
    config, _ = read_graphgps(path)
    assert config.data.dataset == entry["dataset"]
    assert counted(config, entry["dataset"]) == entry["parameters"]


def test_every_file_maps_or_names_its_reason() -> None:
    folder = path_of("").parent
    assert {
        path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml")
    } == set(FILES)
    check_each(check_file, FILES)


def test_keys_without_effect_equal_the_list_on_the_page() -> None:
    idle: Counter[str] = Counter()
    for name in MAPPED:
        idle.update(read_graphgps(path_of(name))[1])
    assert idle == IDLE


@pytest.mark.slow
def test_every_network_takes_a_step_on_the_sample(tmp_path: Path) -> None:
    home = Home(tmp_path)

    def step(name: str) -> None:
        config, _ = read_graphgps(path_of(name))
        parameters = {**config.data.parameters, "limit": 24}
        config = config.with_values("data", sample=True, parameters=parameters)
        data = open_data(config, home=home, quiet=True)
        module = TrainingModule(data.config, data)
        optimizer = build_optimizer(module.model, config.optimizer, fused=False)
        before = [weight.detach().clone() for weight in module.model.parameters()]
        _, _, loss, backward = module.train_loss(next(iter(data.train_batches(0))))
        backward.backward()
        optimizer.step()
        moved = zip(before, module.model.parameters(), strict=True)
        assert torch.isfinite(loss)
        assert not all(torch.equal(old, new) for old, new in moved)

    path_of("")
    check_each(step, [name for name in MAPPED if FILES[name]["dataset"] in dataset_names()])


def table() -> str:
    # Unpadded, as a mark between blanks counts as a word.
    lines = ["|file|dataset|parameters (published)|", "|---|---|---|"]
    for name in MAPPED:
        entry = FILES[name]
        published = f" ({entry['published']:,})" if "published" in entry else ""
        lines.append(f"|`{name}`|`{entry['dataset']}`|{entry['parameters']:,}{published}|")
    lines += ["", "| ignored (no code reads it) | files |", "|---|---|"]
    lines += [f"| `{key}` | {count} |" for key, count in IDLE.items()]
    lines += ["", "| unsupported | why |", "|---|---|"]
    for reason, why in REASONS.items():
        names = [f"`{name}`" for name, entry in FILES.items() if entry.get("out") == reason]
        lines.append(f"| {', '.join(names)} | {why} |")
    return "\n".join(lines) + "\n"


def test_the_page_has_the_table() -> None:
    text, _, old = PAGE.read_text("utf-8").partition(MARK)
    if os.environ.get("KMIP_DATA_WRITE_DOCS"):
        PAGE.write_text(f"{text}{MARK}\n{table()}", encoding="utf-8")
        return
    assert old == f"\n{table()}"

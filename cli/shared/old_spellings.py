"""Commands and options of previous versions, and what to write instead."""

from __future__ import annotations

_PROJECTIONS = {
    "--n": "--gaussian NxD",
    "--d": "--gaussian NxD",
    "--min-nodes": "--nodes A..B",
    "--max-nodes": "--nodes A..B",
    "--part": "kmip-data evaluate RUN --dump-qk FILE --split PART first",
}
#: Command -> option or subcommand -> its new spelling. Each gets one line of error.
OLD_SPELLINGS: dict[str, dict[str, str]] = {
    "": {  # commands
        "completion": "_KMIP_DATA_COMPLETE=bash_source kmip-data, as docs/cli.md has it",
        "du": "kmip-data list",
        "stats": "kmip-data info TARGET",
    },
    "*": {"--part": "--split PART"},  # of every command
    "build": {"--engine": "--dask [ADDRESS]", "--scheduler": "--dask ADDRESS"},
    "fetch": {"--offline": "kmip-data build NAME --offline"},
    "demo": {"--epochs": "kmip-data train --dataset helsinki --as small-city --epochs N"},
    "encode": {
        "--degree-profile": "kmip-data encode TARGET degree-profile-2.0",
        "--engine": "--dask [ADDRESS]",
        "--expander": "kmip-data encode TARGET expander3",
        "--expander-seed": "kmip-data encode TARGET expander3-seed1",
        "--lappe": "kmip-data encode TARGET lappe10",
        "--rwse": "kmip-data encode TARGET rwse20",
        "--scheduler": "--dask ADDRESS",
    },
    "evaluate": {"--dump-part": "--split PART", "--dump-graphs": "--dump-qk FILE, which takes 10 graphs"},
    "info": {"--output": "kmip-data info TARGET > FILE"},
    "analyze": {
        "classes": "kmip-data evaluate RUN --by-class",
        "influence": "kmip-data explore RUN",
        "universality": "kmip-data analyze expressivity",
    },
    "analyze approximation": _PROJECTIONS,
    "analyze cumulative-weight": _PROJECTIONS,
    "bench": {"all": "make bench, in a checkout"},
    "bench attention": {
        "--graphs": "make bench TOPIC=attention, in a checkout",
        "--protocol": "nothing: runs have inputs of their own",
        "--table": "make bench TOPIC=attention, in a checkout",
        "--threads": "OMP_NUM_THREADS=N",
    },
    "bench reading": {"--markdown": "make bench TOPIC=reading, in a checkout", "--quick": "--graphs 32"},
    "bench train": {"--alone": "nothing: other layers are measured by make bench TOPIC=training"},
    "pull": {"--split": "nothing: shards hold all parts"},
    "preview": {"--html": "kmip-data explore TARGET"},
    "report": {"--no-step": "kmip-data train, which tries one step first; `report empty` is gone"},
    "sweep": {
        "--accept-license": "KMIP_DATA_ACCEPT_LICENSE=1, or kmip-data build DATASET --accept-license first",
        "--archive": "kmip-data build DATASET --archive PATH first",
        "--offline": "kmip-data build DATASET --offline first",
        "--tune": '[[changes]] in the plan, with choose = "validation"',
        "--trials": '[[changes]] in the plan, with choose = "validation"',
    },
    "train": {
        "--accept-license": "KMIP_DATA_ACCEPT_LICENSE=1, or kmip-data build DATASET --accept-license first",
        "--archive": "kmip-data build DATASET --archive PATH first",
        "--attention-k": "--set model.attention.k=K",
        "--checkpoint-every": "--set system.checkpoint_every=MINUTES",
        "--compile": "--set system.compile=true",
        "--coordinates": "--set data.coordinates=append",
        "--explain": "kmip-data info DATASET --model MODEL",
        "--jobs": "kmip-data build DATASET --jobs N first",
        "--k": "--set model.attention.k=K",
        "--k-schedule": "--set training.k_schedule=SHAPE:FROM:TO --set model.attention.k=TO",
        "--logger": "--set system.logger=tensorboard",
        "--offline": "kmip-data build DATASET --offline first",
        "--profile": "torch.profiler (docs/training.md, Measurements of the steps)",
        "--scale": "--set training.batch_size=N --set optimiser.lr=RATE",
        "--search": "--set model.attention.search=BACKEND",
        "--seeds-at-once": "kmip-data sweep --dataset DATASET --model MODEL --seeds 0..3 --jobs N",
    },
}


def new_spelling(command: str, option: str) -> str | None:
    """Return what to write instead of an option that ``command`` had; ``None`` if it never had it.

    ``command`` may be empty: then ``option`` is a command.
    """
    of_all = OLD_SPELLINGS["*"] if command else {}
    return {**of_all, **OLD_SPELLINGS.get(command, {})}.get(option)

"""The configuration of a run: a preset or a file, data, options, and ``--set`` last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from kmip_data.builds.home import Home
from kmip_data.errors import conflicting_values_error
from kmip_data.models.training.config.graphgps import read_graphgps
from kmip_data.models.training.config.keys import RunConfig
from kmip_data.models.training.config.overrides import apply_overrides, read_config, with_epochs
from kmip_data.models.training.config.presets import adapt_to_data, config_for_data, preset_on_data
from kmip_data.plugins import import_installed_plugins
from kmip_data.runtime.progress import print_status
from kmip_data.text import PARAMETER_OPTIONS

YAML = {".yaml", ".yml"}  #: endings of a configuration of GraphGPS
#: Default epochs of a sample: each dataset's ends within two minutes on two cores.
SAMPLE_EPOCHS = 3
#: Options of the line -> the key of the configuration that they set.
KEYS = {
    "sample": "data.sample",
    "epochs": "training.epochs",
    "neighbors": "training.neighbors",
    "init_from": "training.init_from",
    "stop_after": "training.stop_after",
    "device": "system.device",
    "devices": "system.devices",
}
_OPTIONS = {**PARAMETER_OPTIONS, "neighbors": "--neighbor-sampling"}


def compose_configuration(  # noqa: PLR0913 -- options, by keyword
    dataset: str | None,
    records: Mapping[str, object],
    split: Mapping[str, object],
    *,
    model: str = "gps-kmip",
    home: Home | None = None,
    file: Path | None = None,
    preset: str | None = None,
    variant: str | None = None,
    epochs: int | None = None,
    overrides: Sequence[str] = (),
    quiet: bool = False,
    **options: object,
) -> RunConfig:
    """Return the dataset's preset, or the file's configuration, with the options, ``--set`` last.

    ``records`` and ``split`` are parameters that were given. A warm-up that would fill ``epochs``
    is shortened; of a sample they are :data:`SAMPLE_EPOCHS` unless the file or ``stop_after`` says
    otherwise. ``options`` have the names of :data:`KEYS`; ``None`` and ``False`` leave the key
    alone.
    """
    replaced = list[str]()
    if preset is not None:
        config, replaced = preset_on_data(str(dataset), preset, variant, home=home)
    elif file is None:
        import_installed_plugins(model=model)
        config = config_for_data(str(dataset), model, variant, home=home)
    else:
        if file.suffix.lower() in YAML:
            config, unread = read_graphgps(file)
            if unread:
                ignored = ", ".join(unread)
                print_status(
                    f"{file}: without effect in its own code, and here: {ignored}", quiet=quiet
                )
        else:
            config = read_config(file, import_plugins=True)
        if dataset is not None and dataset != config.data.dataset:
            config, replaced = adapt_to_data(config, dataset, home=home)
    for line in replaced:
        print_status(line, quiet=quiet)
    config = config.with_values(
        "data",
        parameters={**config.data.parameters, **records},
        split={**config.data.split, **split},
        # A seed of the split that is given counts, whatever the run's seed is.
        split_seed_follows_run=config.data.split_seed_follows_run and "split_seed" not in split,
    )
    chosen = {name: options.get(name) for name in KEYS}
    chosen = {
        name: value for name, value in chosen.items() if value is not None and value is not False
    }
    settings = [f"{KEYS[name]}={value}" for name, value in chosen.items()]
    _refuse_twice({**chosen, "epochs": epochs}, records, split, overrides)
    config = apply_overrides(config, settings)
    scheduled = file is not None or config.training.stop_after is not None
    if epochs is None and config.data.sample and not scheduled:
        epochs = min(SAMPLE_EPOCHS, config.training.epochs)
    if epochs is not None:
        config = with_epochs(config, epochs)
    config = apply_overrides(config, overrides)
    if file is None and not config.preset:
        print_status(f"{dataset} has no preset: {model} uses its defaults", quiet=quiet)
    return config


def _refuse_twice(
    options: Mapping[str, object],
    records: Mapping[str, object],
    split: Mapping[str, object],
    overrides: Sequence[str],
) -> None:
    """Raise ``UsageError`` for a key that both an option and ``--set`` give, with different values."""
    options_by_key = {f"data.parameters.{name}": (name, value) for name, value in records.items()}
    options_by_key |= {f"data.split.{name}": (name, value) for name, value in split.items()}
    options_by_key |= {KEYS[name]: (name, value) for name, value in options.items()}
    for item in overrides:
        key, _, text = item.partition("=")
        name, value = options_by_key.get(key.strip(), ("", None))
        if value is not None and str(value).lower() != text.strip().lower():
            option = _OPTIONS.get(name, f"--{name.replace('_', '-')}")
            raise conflicting_values_error(option, value, item)

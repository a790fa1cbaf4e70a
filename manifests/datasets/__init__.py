"""One folder a dataset: ``dataset.toml``, digests of its builds and a preset ``MODEL.toml`` each."""

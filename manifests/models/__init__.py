"""One TOML file a model: the keys in which it differs from the defaults. Its name is the file's."""

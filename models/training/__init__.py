"""Train a network on a build. Subpackages, each using the previous ones: config, data, run."""

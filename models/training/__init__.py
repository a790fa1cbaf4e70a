"""Training of a network on a build. Each folder uses the ones before it: config, data, run."""

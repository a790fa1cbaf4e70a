"""Training a network on a build. Each folder uses those before it: config, objective, data, run."""

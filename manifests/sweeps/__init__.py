"""Plans of sweeps: which datasets, models, changes and seeds. Each name is its file's."""

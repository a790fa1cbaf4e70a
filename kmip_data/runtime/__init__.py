"""Process services: threads, compiled kernels, progress, signals, memory, HTTP."""

"""Services of the process: threads, compiled kernels, progress, signals, memory, HTTP."""

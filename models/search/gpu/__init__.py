"""Search on NVIDIA GPUs: CUDA C++ kernels (``kernels/``), compiled on first use."""

"""The search on NVIDIA GPUs: kernels in CUDA C++ (``kernels/``), compiled when they are first needed."""

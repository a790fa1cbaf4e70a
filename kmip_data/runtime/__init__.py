"""What code needs of its process: threads, compiled kernels, progress, interrupts, memory."""

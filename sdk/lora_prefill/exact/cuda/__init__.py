"""The CUDA kernels of exact prefill: their sources by concern, and how they are launched."""

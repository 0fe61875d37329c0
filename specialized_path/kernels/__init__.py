"""Kernels of Kimi K3 decoding in CuTe DSL, one folder a family; their inventory needs neither a GPU nor the DSL."""

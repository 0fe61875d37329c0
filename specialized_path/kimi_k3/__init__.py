"""Kimi K3 inside stock vLLM on an NVIDIA GPU: the model class, what it refuses, and its decode steps."""

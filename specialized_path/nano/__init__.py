"""A miniature Kimi K3 that vLLM serves on a CPU: every mechanism of the decode path, small sizes."""

"""The Kimi K3 specialised decode path, a vLLM plugin."""

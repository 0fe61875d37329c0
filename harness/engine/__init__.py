"""Starts, drives, traces and stops one arm of a real vLLM engine."""

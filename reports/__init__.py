"""Renderings of a bundle for people and for tools."""

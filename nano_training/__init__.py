"""Gives the miniature a skill: a differentiable forward of the same model, and a script that trains it on chats."""

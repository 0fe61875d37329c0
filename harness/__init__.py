"""The judge: turns a change into evidence, findings and a verdict."""

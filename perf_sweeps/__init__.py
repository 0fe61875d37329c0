"""Performance cells: paired, interleaved timing of both arms."""

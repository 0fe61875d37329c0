"""Writes a servable checkpoint of the miniature Kimi K3 with the trained weights.

Usage: `python -m nano_training.checkpoint OUT_DIR`; `python -m specialized_path.nano.checkpoint` writes seeded ones.
"""

import argparse
from pathlib import Path

from safetensors.torch import load_file

from specialized_path.nano.checkpoint import write_checkpoint

TRAINED_WEIGHTS = Path(__file__).with_name("trained") / "model.safetensors"


def main() -> None:
    """Parses the command line and writes one checkpoint."""
    parser = argparse.ArgumentParser(prog="python -m nano_training.checkpoint", description=__doc__)
    parser.add_argument("out_dir", type=Path, help="directory to write into")
    print(write_checkpoint(parser.parse_args().out_dir, weights=load_file(TRAINED_WEIGHTS)))


if __name__ == "__main__":
    main()

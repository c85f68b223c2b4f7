"""`planprobe`: measure this host into topo.yaml."""

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from plancc.ir.command import run_command
from plancc.ir.errors import BadInput
from plancc.ir.files import refuse_unwritable

if TYPE_CHECKING:
    from plancc.executor.probe_options import DeviceFlags
    from plancc.ir.topology import Topology

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("-o", "--output", type=_FILE, help="The topology's file.")
@click.option("--name", help="Of the topology; default: the file's name.")
@click.option("--cards", metavar="all|none|0,1",
              help="Cards to measure, by number or by the beginning of their uuid; default: "
                   "all.")  # fmt: skip
@click.option("--cpu-devices", type=int, metavar="N",
              help="CPU devices cpu0 .. beside the cards; default: one where there are no "
                   "cards.")  # fmt: skip
@click.option("--cpu-memory", multiple=True, metavar="SIZE",
              help="What a CPU device may hold, e.g. 300MiB: one value for all, or one each "
                   "(commas, or the flag again); default: the free RAM / N.")  # fmt: skip
@click.option("--cpu-threads", multiple=True, metavar="T",
              help="Threads of a CPU device, one value for all or one each; default: "
                   "cores / N.")  # fmt: skip
@click.option("--dtype", type=click.Choice(["bfloat16", "float16", "float32"]),
              help="Of the weights that are streamed; default bfloat16.")  # fmt: skip
@click.option("--host-name", metavar="HOST", help="Default h0.")
@click.option("--address", metavar="IP", help="Where its processes meet; default 127.0.0.1.")
@click.option("--refresh", type=_FILE, metavar="TOPO",
              help="Measure TOPO's devices again, print what changed, write the file "
                   "anew.")  # fmt: skip
@click.option("--join", nargs=2, type=_FILE, metavar="A B", default=None,
              help="Make one file of two hosts' files.")  # fmt: skip
@click.option("--between", metavar="gb_s=..,latency_us=..",
              help="What lies between the hosts of --join.")  # fmt: skip
@click.option("--staged", is_flag=True,
              help="Measure links between cards through memory of the host, as if they could not "
                   "reach each other.")  # fmt: skip
@click.option("--quick", is_flag=True, help="Fewer sizes and repetitions.")
@click.option("--json", "as_json", is_flag=True, help="The summary on stdout, for programs.")
def planprobe(
    output: Path | None,
    refresh: Path | None,
    join: tuple[Path, Path] | None,
    between: str | None,
    staged: bool,
    quick: bool,
    as_json: bool,
    **typed: Any,
) -> None:
    """Measure this host's devices, with the executor's own kernels and links, into a topology."""
    from plancc.executor.probe_options import DeviceFlags  # pydantic is not needed for --help

    target, flags = _target(output, refresh), DeviceFlags(**typed)
    if join is not None and refresh is not None:
        raise BadInput("--join and --refresh: expected one of them, found both")
    if join is not None and staged:
        raise BadInput("--staged tells how links are measured, and --join measures none")
    if join is not None:
        answer = _join(target, join, between, flags)
    elif between is not None:
        raise BadInput("--between tells what lies between the hosts of --join, found no --join")
    else:
        answer = _measure(target, refresh, flags, quick=quick, is_staged=staged)
    changes = answer.pop("text", None)
    if as_json:
        click.echo(json.dumps(answer, indent=2))
    elif changes is not None:
        click.echo(changes)


def _target(output: Path | None, refresh: Path | None) -> Path:
    target = output or refresh
    if target is None:
        raise BadInput("expected -o FILE for the topology (or --refresh FILE), found neither")
    refuse_unwritable(target)
    return target


def _measure(
    target: Path, refresh: Path | None, flags: "DeviceFlags", *, quick: bool, is_staged: bool
) -> dict[str, Any]:
    """Measure and write; what --json prints, and with --refresh the changes in words as `text`."""
    from plancc.executor.probe import probe
    from plancc.executor.probe_compare import changes, describe_changes
    from plancc.executor.probe_options import options_from_flags, options_to_refresh
    from plancc.executor.probe_screen import Progress, show_summary
    from plancc.ir.topology import read_topology

    old = read_topology(refresh) if refresh else None
    how = {"quick": quick, "is_staged": is_staged}
    options = (
        options_to_refresh(old, flags, target, os.environ, **how)
        if old
        else options_from_flags(flags, target, os.environ, **how)
    )
    began = time.monotonic()
    with Progress(options.num_steps) as progress:
        measured = probe(options, progress.step)
    topology = measured.topology
    _write(topology, target)
    seconds = round(time.monotonic() - began, 1)
    show_summary(topology, target, f"measured in {seconds} s", measured.warnings)
    answer = {**_summary(topology, target), "seconds": seconds, "warnings": measured.warnings}
    if old:
        moved = changes(old, topology)
        answer |= {"changes": [one.data() for one in moved], "text": describe_changes(moved)}
    return answer


def _write(topology: "Topology", target: Path) -> None:
    """What took minutes to measure goes to stdout where the file cannot be written after all."""
    from plancc.executor.probe_yaml import to_yaml, write_topology

    try:
        write_topology(topology, target)
    except BadInput:
        click.echo(to_yaml(topology), nl=False)
        raise


def _join(
    target: Path, paths: tuple[Path, Path], between: str | None, flags: "DeviceFlags"
) -> dict[str, Any]:
    from plancc.executor.probe_join import join, parse_between
    from plancc.executor.probe_options import refuse_device_flags, topology_name
    from plancc.executor.probe_screen import show_summary
    from plancc.executor.probe_yaml import write_topology
    from plancc.ir.topology import read_topology

    refuse_device_flags("--join", flags)
    first, second = (read_topology(path) for path in paths)
    topology = join(first, second, topology_name(flags, target), parse_between(between))
    write_topology(topology, target)
    show_summary(topology, target, "joined, what lies between the hosts as given")
    return _summary(topology, target)


def _summary(topology: "Topology", target: Path) -> dict[str, Any]:
    return {"file": str(target), "topology": topology.model_dump(mode="json", by_alias=True)}


def main() -> None:
    """The entry point of `planprobe`."""
    run_command(planprobe)

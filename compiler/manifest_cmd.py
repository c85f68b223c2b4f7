"""`plancc manifest` and `plancc import-gguf`: the commands that read a model's files."""

import json
from pathlib import Path
from typing import Literal

import click

from plancc.ir.dtype import DType
from plancc.ir.units import format_bytes


@click.command("manifest", short_help="Describe a model folder: config, headers, fingerprints.")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
              help="Where to write the manifest; standard output without it.")  # fmt: skip
@click.option("--name", help="Name of the model; the folder's without it.")
@click.option("--fingerprint", type=click.Choice(["sampled", "full"]), default="sampled",
              show_default=True, help="Hash 12 KiB of each tensor, or all of it.")  # fmt: skip
@click.option("--tied", type=click.Choice(["yes", "no"]),
              help="Whether the head is the embedding, where files disagree.")  # fmt: skip
@click.option("--verbose", is_flag=True, help="List files that were left out.")
@click.option("--json", "as_json", is_flag=True, help="Say what was written as JSON.")
def manifest_command(
    folder: Path,
    output: Path | None,
    name: str | None,
    fingerprint: Literal["sampled", "full"],
    tied: Literal["yes", "no"] | None,
    verbose: bool,
    as_json: bool,
) -> None:
    """Write the manifest of the Hugging Face model in DIR.

    Reads config.json and the headers of *.safetensors, and of the weights only what the
    fingerprint needs.
    """
    from plancc.compiler.manifest_of_folder import manifest_of_folder
    from plancc.compiler.manifest_yaml import manifest_text, relative_source
    from plancc.compiler.progress import byte_bar
    from plancc.ir.files import write_whole

    with byte_bar("fingerprints") as bar:
        made = manifest_of_folder(
            folder,
            name=name,
            fingerprint=fingerprint,
            tied=None if tied is None else tied == "yes",
            source=relative_source(folder, output),
            started=bar.start,
            hashed=bar.advance,
        )
    for note in made.notes + (made.details if verbose else ()):
        click.echo(f"note: {note}", err=True)
    text = manifest_text(made.manifest)
    if output is None:
        click.echo(text, nl=False)
        return
    write_whole(output, text)
    click.echo(json.dumps(made.summary(output)) if as_json else made.sentence(output))


@click.command("import-gguf", short_help="Turn a GGUF file into a model folder.")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path))
@click.option("-o", "--output", "folder", metavar="DIR", required=True,
              type=click.Path(path_type=Path), help="The model folder to write.")  # fmt: skip
@click.option("--dtype", type=click.Choice(["bfloat16", "float32", "float16"]),
              default="bfloat16", show_default=True)  # fmt: skip
@click.option("--force", is_flag=True, help="Replace an earlier import in DIR.")
@click.option("--json", "as_json", is_flag=True, help="Say what was written as JSON.")
def import_gguf_command(file: Path, folder: Path, dtype: DType, force: bool, as_json: bool) -> None:
    """Dequantise the llama model in FILE into a Hugging Face folder: config, tokenizer, weights."""
    from plancc.compiler.gguf_import.import_gguf import import_gguf
    from plancc.compiler.progress import byte_bar

    with byte_bar(f"weights in {dtype}") as bar:
        made = import_gguf(
            file, folder, dtype=dtype, force=force, started=bar.start, written=bar.advance
        )
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
    if as_json:
        summary = {"folder": str(folder), "dtype": dtype, "tensors": made.num_tensors,
                   "weight_bytes": made.weight_bytes, "vocab_size": made.vocab_size}  # fmt: skip
        click.echo(json.dumps(summary))
        return
    click.echo(f"wrote {folder}: {made.num_tensors} tensors, {format_bytes(made.weight_bytes)} in "
               f"{dtype}, tokenizer of {made.vocab_size} tokens")  # fmt: skip

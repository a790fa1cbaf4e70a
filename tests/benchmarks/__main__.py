"""``make bench``: the topics beside this file and those of ``kmip-data bench``, every row measured here."""

from pathlib import Path

from kmip_data.cli import benchmarks
from kmip_data.cli.bench import command

benchmarks.__path__.append(str(Path(__file__).parent))
command(prog_name="make bench")

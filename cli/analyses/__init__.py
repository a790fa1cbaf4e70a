"""The analyses of ``kmip-data analyze``, one module each, and the options that they share."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kmip_data.cli.shared.options import home_option, json_option, quiet_option
from kmip_data.cli.shared.output import print_json, table
from kmip_data.errors import UsageError
from kmip_data.format.card import remark
from kmip_data.format.parts import PARTS
from kmip_data.wording import counted

if TYPE_CHECKING:
    from kmip_data.builds.home import Home
    from kmip_data.models.analysis.projections import Projections
    from kmip_data.models.analysis.study import Choice, Study

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: tuple[Callable[[Any], Any], ...] = (
    click.argument("run", required=False),
    click.option(
        "--qk",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Queries, keys and values that `kmip-data evaluate RUN --dump-qk FILE` wrote.",
    ),
    click.option("--gaussian", is_flag=True, help="Independent standard normal queries, keys and values."),
    click.option(
        "--n", type=click.IntRange(min=1), metavar="N", help="With --gaussian: nodes.  [default: 2500]"
    ),
    click.option(
        "--d", type=click.IntRange(min=1), metavar="N", help="With --gaussian: row length.  [default: 16]"
    ),
    click.option(
        "--heads", type=click.IntRange(min=1), metavar="N", help="With --gaussian: heads.  [default: 1]"
    ),
    click.option(
        "--part",
        type=click.Choice(PARTS),
        default="test",
        show_default=True,
        help="With RUN: the part whose graphs are taken.",
    ),
    click.option(
        "--graphs",
        type=click.IntRange(min=1),
        metavar="N",
        help="Take the first N graphs; with --gaussian, N draws.  [default: 50; 1]",
    ),
    click.option(
        "--layers",
        metavar="LIST",
        help="Such as 1..7 or 0,3, from 0.  [default: all but the first, as in the paper]",
    ),
    click.option(
        "--min-nodes", type=click.IntRange(min=1), default=1, metavar="N", help="No smaller graphs."
    ),
    click.option(
        "--max-nodes",
        type=click.IntRange(min=1),
        default=5000,
        show_default=True,
        metavar="N",
        help="No larger graphs: the work grows with the square.",
    ),
    click.option(
        "--queries",
        type=click.IntRange(min=1),
        metavar="N",
        help="Only N random nodes of each graph, each against all keys.  [default: all]",
    ),
    click.option("--k", "ks", metavar="LIST", help="Such as 1,10,100.  [default: the paper's 43, up to n]"),
    click.option("--seed", type=click.IntRange(min=0), default=0, metavar="N", help="Of all that is drawn."),
    click.option(
        "--save",
        metavar="PREFIX",
        help="Write PREFIX.png and PREFIX.csv.  [default: the analysis' name, in the run folder or here]",
    ),
    home_option,
    json_option,
    quiet_option,
)


def analysis_options(function: F) -> F:
    """Where the projections come from, which of them, which k, where the results go."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True)
class Analysis:
    """The options of one analysis, as they were given."""

    name: str
    run: str | None
    qk: Path | None
    gaussian: bool
    n: int | None
    d: int | None
    heads: int | None
    part: str
    graphs: int | None
    layers: str | None
    min_nodes: int
    max_nodes: int
    queries: int | None
    ks: str | None
    seed: int
    save: str | None
    home: Home
    as_json: bool
    quiet: bool

    def projections(self) -> Projections:
        """What is analysed; raises :class:`UsageError` unless exactly one source is named."""
        given = [name for name, value in self._sources().items() if value]
        if len(given) != 1:
            raise UsageError(
                "One source of queries and keys must be named.",
                expected="RUN, --qk FILE or --gaussian",
                found=" and ".join(given) or "none",
                left="nothing was written",
                next=f"kmip-data analyze {self.name} --gaussian --n 2500 --d 16",
            )
        only = [f"--{name}" for name in ("n", "d", "heads") if getattr(self, name) is not None]
        if only and not self.gaussian:
            raise UsageError(
                f"{', '.join(only)} shape generated data.",
                expected="--gaussian beside them",
                found=given[0],
                left="nothing was written",
                next="leave them out, or take --gaussian",
            )
        if self.gaussian:
            from kmip_data.models.analysis.study import gaussian_projections

            return gaussian_projections(
                self.n or 2500, self.d or 16, heads=self.heads or 1, graphs=self.graphs or 1, seed=self.seed
            )
        if self.qk is not None:
            from kmip_data.models.analysis.projections import read_projections

            return read_projections(self.qk)
        from kmip_data.models.analysis.recording import record_run

        return record_run(
            str(self.run),
            part=self.part,
            graphs=self.choice().graphs,
            sizes=(self.min_nodes, self.max_nodes),
            home=self.home,
        )

    def _sources(self) -> dict[str, object]:
        return {"RUN": self.run, "--qk": self.qk, "--gaussian": self.gaussian}

    def choice(self) -> Choice:
        """Which layers and graphs."""
        from kmip_data.models.analysis.study import Choice

        return Choice(
            layers=None if self.layers is None else number_list("--layers", self.layers),
            graphs=self.graphs or 50,
            min_nodes=self.min_nodes,
            max_nodes=max(self.max_nodes, self.n or 2500) if self.gaussian else self.max_nodes,
            queries=self.queries,
            seed=self.seed,
        )

    def k_values(self) -> tuple[int, ...] | None:
        """Values of k, rising, or ``None`` for the paper's."""
        return None if self.ks is None else tuple(sorted(set(number_list("--k", self.ks))))

    def prefix(self) -> Path:
        """Where results go, without the suffix; its folder exists or this raises UsageError."""
        if self.save is not None:
            prefix = Path(self.save).expanduser()
        elif self.run is not None:
            from kmip_data.models.training.run.folders import find_run

            prefix = find_run(self.run, self.home) / self.name
        else:
            prefix = Path(self.name)
        check_prefix(prefix)
        return prefix

    def show(self, study: Study, about: dict[str, Any], columns: dict[str, str], saved: list[Path]) -> None:
        """Print the summary as a table or JSON."""
        means = {name: study.summary(name) for name in study.curves}
        if self.as_json:
            curves = {
                name: {"mean": mean.tolist(), "std": std.tolist()} for name, (mean, std) in means.items()
            }
            print_json(
                {
                    "analysis": self.name,
                    "about": about,
                    "k": list(study.ks),
                    "samples": len(study.samples),
                    "curves": curves,
                    "saved": [str(path) for path in saved],
                }
            )
            return
        # One graph has no deviation.
        parts = (0, 1) if len({graph for _, graph, _ in study.samples}) > 1 else (0,)
        header = ["k", *((columns[name], "±")[part] for name in columns for part in parts)]
        rows = [
            [k, *(f"{means[name][part][place]:.4f}" for name in columns for part in parts)]
            for place, k in enumerate(study.ks)
        ]
        click.echo(table(header, rows))
        click.echo(f"{describe(about)}; {counted(len(study.samples), 'sample')} (a layer of a graph)")
        click.echo("saved  " + "  ".join(str(path) for path in saved))


def describe(about: dict[str, Any]) -> str:
    """One line that says where the projections come from."""
    if about.get("data") == "Gaussian":
        return f"Gaussian queries, keys and values, n = {about['n']:,}, d = {about['d']}"
    extent = remark(bool(about.get("sample")), about.get("complete"))
    return f"{about.get('dataset')}{extent}, part {about.get('part')}, run {about.get('run')}"


_MOST_NUMBERS = 10_000  #: of one range


def number_list(option: str, text: str) -> tuple[int, ...]:
    """``0..3`` or ``1,5,7`` as numbers; raises :class:`UsageError` where it is neither."""
    numbers: list[int] = []
    for item in text.replace(" ", "").split(","):
        match = re.fullmatch(r"(\d{1,9})(?:\.\.(\d{1,9}))?", item)
        if match is None or int(match[2] or 0) - int(match[1]) >= _MOST_NUMBERS:
            raise UsageError(
                f"{option} is no list of numbers.",
                expected=f"such as 1,10,100 or 1..7, at most {_MOST_NUMBERS:,}",
                found=text,
                left="nothing was written",
                next=f"{option} 1,2",
            )
        numbers.extend(range(int(match[1]), int(match[2] or match[1]) + 1))
    return tuple(numbers)


def check_prefix(prefix: Path) -> None:
    """Raise UsageError now, not after the work, where files beginning with ``prefix`` cannot be written."""
    import os

    if not prefix.name or not prefix.parent.is_dir() or not os.access(prefix.parent, os.W_OK):
        raise UsageError(
            "Results cannot be saved there.",
            expected="--save FOLDER/NAME in a folder that exists and may be written to",
            found=str(prefix),
            left="nothing was written",
            next="another --save",
        )

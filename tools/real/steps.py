"""Steps of ``make real`` for one dataset: check each mirror, then run the commands of a user.

Each step runs in its own process, and returns a note for the table or raises.
"""

from __future__ import annotations

import contextlib
import io
import shutil
from collections.abc import Callable
from functools import partial

from kmip_data.builds.home import Home, list_builds, newest_match
from kmip_data.errors import CheckFailed
from kmip_data.manifest import Manifest, Mirror, Source, load_manifest
from kmip_data.text import human_bytes

Step = tuple[str, Callable[[], str]]


def steps_of(name: str, home: Home) -> list[Step]:
    """Return the names and functions of the steps of a dataset, in order."""
    manifest = load_manifest(name)
    steps: list[Step] = []
    for source in manifest.sources:
        for number, mirror in enumerate(source.mirrors):
            if not source.is_packaged:
                check = partial(check_mirror, manifest, source, mirror, home)
                steps.append((f"mirror {number + 1} of {source.name}", check))
    if manifest.sources:
        steps.append(("fetch", partial(command, home, "fetch", name)))
    steps += [
        ("build", partial(command, home, "build", name, "--offline")),
        ("counts", partial(counts, name, home)),
        ("verify", partial(verify, name, home)),
        ("epoch", partial(command, home, "train", name, "--epochs", "1")),
    ]
    return steps


def check_mirror(manifest: Manifest, source: Source, mirror: Mirror, home: Home) -> str:
    """Download a source from one mirror, and check its pinned size and digest.

    The first working mirror fills the home, so that ``fetch`` has nothing to download. Files from
    other mirrors are compared with it and removed.
    """
    from kmip_data.pipelines.raw.copies import read_receipt, verified_receipt
    from kmip_data.pipelines.raw.download import download_source
    from kmip_data.pipelines.raw.licenses import require_accepted_license

    require_accepted_license(manifest, home)
    content = source.content or manifest.content
    kept = home.raw / manifest.name / source.name
    first = verified_receipt(kept)
    scratch = home.path / "mirrors" / manifest.name / str(source.mirrors.index(mirror))
    # A receipt from this mirror means that an earlier run was stopped after the download.
    is_first = first is None or first.origin == mirror.address
    stored = kept if is_first else scratch / source.name

    alone = source.model_copy(update={"mirrors": (mirror,), "content": content})
    download_source(alone, stored.parent, remedy="", quiet=True)
    receipt = read_receipt(stored)
    assert receipt is not None
    notes = [human_bytes(receipt.bytes), f"SHA-256 {receipt.sha256[:12]}…"]
    notes.append("the pinned digest" if mirror.is_pinned else "no digest is pinned")
    if stored != kept:
        is_same = first is not None and first.sha256 == receipt.sha256
        notes.append("the same bytes as in the home" if is_same else "other bytes than in the home")
        shutil.rmtree(scratch)
    return ", ".join(notes)


def command(home: Home, *words: str) -> str:
    """Run a command of kmip-data on ``home``; raise ``CheckFailed`` with its message if it fails."""
    from kmip_data.cli.main import run_command_line

    out = io.StringIO()
    err = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command_line([*words, "--home", str(home.path), "--quiet"])
    if code:
        raise CheckFailed(f"exit code {code}: {' '.join(err.getvalue().split())[:400]}")
    return f"kmip-data {' '.join(words)}"


def counts(name: str, home: Home) -> str:
    """Compare the graphs, mean nodes and mean edges of the build with the published ones."""
    expected = load_manifest(name).expected
    build = newest_match(list_builds(home, name), {})
    if build is None:
        raise CheckFailed(f"There is no build of {name}.")
    graphs, nodes, edges = (
        sum(getattr(shard, level) for shard in build.card.shards)
        for level in ("graphs", "nodes", "edges")
    )
    counts = f"{graphs:,} graphs, {nodes / graphs:,.2f} nodes and {edges / graphs:,.2f} edges each"
    if expected.graphs is None:
        return f"{counts}; no counts are published"
    published = f"{expected.graphs:,}, {expected.avg_nodes} and {expected.avg_edges}"
    if not build.card.complete:
        raise CheckFailed(f"{counts}; published: {published}. {' '.join(build.card.notes)}")
    return f"{counts}; published: {published}"


def verify(name: str, home: Home) -> str:
    """Verify the build, also against published digests if there are any."""
    from kmip_data.builds.verify import published_digests_by_key

    build = newest_match(list_builds(home, name), {})
    if build is not None and build.card.key in published_digests_by_key():
        return command(home, "verify", name, "--published")
    return f"{command(home, 'verify', name)}; no digests of this build are published"

"""Show a dataset's license, and have it agreed to before a download that needs agreement."""

from __future__ import annotations

import os
from typing import Any

from kmip_data.builds.home import Home
from kmip_data.errors import LicenseNotAccepted, writing
from kmip_data.files.changes import write_json
from kmip_data.files.reading import read_json
from kmip_data.manifest import Manifest
from kmip_data.runtime.progress import say
from kmip_data.wording import timestamp

ENVIRONMENT = "KMIP_DATA_ACCEPT_LICENSE"
RECORD_NAME = "licences.json"
SHOWN: set[str] = set()  #: datasets whose license this process has printed
_YES = {"1", "true", "yes", "y"}


def show_license(manifest: Manifest) -> None:
    """Print license and attribution on stderr."""
    SHOWN.add(manifest.name)
    terms = manifest.license
    say(f"license of {manifest.name}: {terms.notice}{terms.url and f' ({terms.url})'}")


def accepted_licenses(home: Home) -> dict[str, dict[str, Any]]:
    """Dataset name to what was agreed to and how; empty when nothing is on record."""
    try:
        record = read_json(home.root / RECORD_NAME)
    except (OSError, ValueError):
        record = None
    entries = record.items() if isinstance(record, dict) else ()
    return {str(name): entry for name, entry in entries if isinstance(entry, dict)}


def require_agreement(manifest: Manifest, home: Home, accept: bool | None = None) -> None:
    """Return when the license was agreed to, now or before; an agreement is recorded once.

    ``accept=None`` looks at ``KMIP_DATA_ACCEPT_LICENSE``. Raises ``LicenseNotAccepted``, with the terms and
    the ways to agree, where nobody agreed.
    """
    if not manifest.license.agreement:
        return
    terms = {"name": manifest.license.name, "url": manifest.license.url}
    known = accepted_licenses(home).get(manifest.name, {})
    if {key: known.get(key) for key in terms} == terms:
        return
    if not (os.environ.get(ENVIRONMENT, "").strip().lower() in _YES if accept is None else accept):
        raise LicenseNotAccepted(
            f"Downloading {manifest.name} needs agreement to: {manifest.license.name}.",
            expected=f"agreement to {manifest.license.url} — {manifest.license.notice}",
            next=f"kmip-data fetch {manifest.name} --accept-license, or {ENVIRONMENT}=1; a copy you have "
            "already needs none: --archive PATH",
        )
    with writing(home.root):
        home.root.mkdir(parents=True, exist_ok=True)
    entry = {**terms, "how": "flag" if accept else "environment", "time": timestamp()}
    write_json(home.root / RECORD_NAME, {**accepted_licenses(home), manifest.name: entry})

"""Licenses of datasets: terms on stderr, and agreements recorded in the home folder."""

from __future__ import annotations

import contextlib
import os

from pydantic import TypeAdapter

from kmip_data.builds.home import Home
from kmip_data.errors import Command, LicenseNotAccepted
from kmip_data.files.atomic_writes import write_json
from kmip_data.files.path_errors import convert_write_errors
from kmip_data.files.small_files import read_json
from kmip_data.manifest import Manifest
from kmip_data.runtime.progress import print_status
from kmip_data.text import timestamp

ACCEPT_LICENSE_VARIABLE = "KMIP_DATA_ACCEPT_LICENSE"
ACCEPTED_LICENSES_NAME = "licenses.json"  #: file in the home folder with the licenses agreed to
_YES = {"1", "true", "yes", "y"}
_ACCEPTED_LICENSES = TypeAdapter(dict[str, dict[str, object]])  #: dataset -> terms, time and manner


def show_license(manifest: Manifest) -> None:
    """Print license and attribution on stderr."""
    terms = manifest.license
    print_status(f"license of {manifest.name}: {terms.notice}{terms.url and f' ({terms.url})'}")


def accepted_licenses(home: Home) -> dict[str, dict[str, object]]:
    """Return the accepted licenses by dataset; empty without a valid record."""
    with contextlib.suppress(OSError, ValueError):
        return _ACCEPTED_LICENSES.validate_python(read_json(home.path / ACCEPTED_LICENSES_NAME))
    return {}


def require_accepted_license(
    manifest: Manifest,
    home: Home,
    accept: bool | None = None,
) -> None:
    """Require agreement to the license, either now or recorded earlier, and record it.

    ``accept=None`` reads ``KMIP_DATA_ACCEPT_LICENSE``. Raises ``LicenseNotAccepted`` with the terms
    and the ways to agree.
    """
    if not manifest.license.agreement:
        return
    terms = {"name": manifest.license.name, "url": manifest.license.url}
    accepted = accepted_licenses(home)
    if terms.items() <= accepted.get(manifest.name, {}).items():
        return

    agreed = accept
    if accept is None:
        agreed = os.environ.get(ACCEPT_LICENSE_VARIABLE, "").strip().lower() in _YES
    if not agreed:
        raise LicenseNotAccepted(
            f"Downloading {manifest.name} needs agreement to: {manifest.license.name}.",
            expected=f"agreement to {manifest.license.url} — {manifest.license.notice}",
            steps=[
                f"agree, or set {ACCEPT_LICENSE_VARIABLE}=1, or use a copy that you have as archive",
                Command("kmip-data fetch {} --accept-license", manifest.name),
            ],
        )
    with convert_write_errors(home.path):
        home.path.mkdir(parents=True, exist_ok=True)
    entry = {**terms, "how": "flag" if accept else "environment", "time": timestamp()}
    write_json(home.path / ACCEPTED_LICENSES_NAME, {**accepted, manifest.name: entry})

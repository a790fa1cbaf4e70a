"""Addresses of remote builds and the file systems that reach them."""

from __future__ import annotations

import os
import re
from typing import Any

from kmip_data.errors import UsageError
from kmip_data.runtime.presence import install_command
from kmip_data.wording import shown_address, without_secrets


def is_address(target: str | os.PathLike[str]) -> bool:
    """True if a text is an address (``s3://bucket/name``), not a folder or a name."""
    return re.match(r"[a-z][a-z0-9+.-]+://", os.fspath(target)) is not None


def pull_command(address: str) -> str:
    """Return the command that copies everything at an address to this machine."""
    return f"kmip-data pull {shown_address(address)}, and open the copy"


def file_system(address: str) -> tuple[Any, str]:
    """Return fsspec's file system of an address and the path in it, ``~`` expanded.

    Raises ``UsageError`` where fsspec knows no such address, or lacks the package for it.
    """
    import fsspec

    try:
        # An empty text would be the working folder.
        system, root = fsspec.core.url_to_fs(address or "nothing://")
    except UsageError:
        raise
    except Exception as error:  # each file system has errors of its own
        raise UsageError(
            f"{shown_address(address) or 'An empty text'} is not an address that can be reached from here.",
            expected="a folder, or hf://, s3://, gs://, https:// with the packages for it",
            found=without_secrets(str(error), address),
            next=f"{install_command('hub')} (hf://), or pip install s3fs (s3://) or gcsfs (gs://)",
        ) from error
    return system, root

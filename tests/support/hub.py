"""Stand-in for the Hugging Face hub, in memory."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem


class Hub(MemoryFileSystem):
    """File system of the hub, which reports a missing file in its own way."""

    protocol = "hf"
    store: dict[str, object] = {}  # noqa: RUF012 -- of the class, as in MemoryFileSystem
    pseudo_dirs = [""]  # noqa: RUF012

    def resolve_path(self, path: str) -> SimpleNamespace:
        """Split ``[datasets/]OWNER/NAME[/FOLDER]``."""
        words = path.strip("/").split("/")
        kind = words.pop(0).removesuffix("s") if words[0] == "datasets" else "model"
        return SimpleNamespace(
            repo_id="/".join(words[:2]),
            repo_type=kind,
            revision="main",
            path_in_repo="/".join(words[2:]),
        )

    def open(self, path: str, mode: str = "rb", **more: object) -> object:
        if mode == "rb" and not self.exists(path):
            error = OSError("Entry Not Found")
            error.response = SimpleNamespace(status_code=404)
            raise error
        return super().open(path, mode, **more)


def replace_hub(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str]]:
    """Let ``hf://`` addresses lead to an empty :class:`Hub`; return the list of its commits."""
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub is not installed")
    Hub.store.clear()
    url_to_fs = fsspec.core.url_to_fs
    commits: list[tuple[str, str, str]] = []

    def find_file_system(address: str, **options: object) -> tuple[object, str]:
        if address.startswith("hf://"):
            return Hub(), address.removeprefix("hf:/")
        return url_to_fs(address, **options)

    def create_commit(
        self: object, repo_id: str, operations: list, *, repo_type: str, revision: str, **_: object
    ) -> None:
        commits.append((repo_id, repo_type, revision))
        root = f"/{repo_id}" if repo_type == "model" else f"/{repo_type}s/{repo_id}"
        for operation in operations:
            data = operation.path_or_fileobj
            data = data if isinstance(data, bytes) else Path(data).read_bytes()
            Hub().pipe_file(f"{root}/{operation.path_in_repo}", data)

    monkeypatch.setattr(fsspec.core, "url_to_fs", find_file_system)
    monkeypatch.setattr(hub.HfApi, "create_commit", create_commit)
    return commits

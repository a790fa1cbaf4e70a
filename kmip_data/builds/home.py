"""The home folder with raw files, builds and runs, and finished builds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from kmip_data.errors import DamagedInput, UsageError
from kmip_data.files.errors import located
from kmip_data.format.card import CARD_NAME, Card, read_card

if TYPE_CHECKING:
    from kmip_data.format.reader import Shard

ENVIRONMENT = "KMIP_DATA_HOME"


@dataclass(frozen=True)
class Home:
    """The home folder: ``raw/``, ``built/`` and ``runs/`` (created when first written to)."""

    root: Path

    @classmethod
    def locate(cls, path: str | os.PathLike[str] | Home | None = None) -> Home:
        """``path``, else ``$KMIP_DATA_HOME``, else the platform's user data folder."""
        if isinstance(path, Home):
            return path
        if path is None:
            path = os.environ.get(ENVIRONMENT) or None
        if path is None:
            import platformdirs

            path = platformdirs.user_data_dir("kmip-data", appauthor=False)
        return cls(located(path, f"home folder (--home DIR, {ENVIRONMENT})"))

    @property
    def raw(self) -> Path:
        """Archives and their extracted members."""
        return self.root / "raw"

    @property
    def built(self) -> Path:
        """One folder per build."""
        return self.root / "built"

    @property
    def runs(self) -> Path:
        """One folder per training run: ``runs/<dataset>/<model>/<name>``."""
        return self.root / "runs"

    @property
    def cache(self) -> Path:
        """Blocks and cards of remote builds; may be removed at any time."""
        return self.root / "cache"


@dataclass(frozen=True)
class Build:
    """A finished build on disk."""

    path: Path
    card: Card
    #: reading it waits for a network, so that several batches are made at a time
    waits: ClassVar[bool] = False

    @property
    def place(self) -> str:
        """Where its files lie, as messages say it."""
        return str(self.path)

    @property
    def remedy(self) -> str:
        """What to do where one of its files is damaged."""
        return f"kmip-data verify {self.path} --repair"

    def shard(self, file: str) -> Shard:
        """Open one of its shards, or a file beside one, by its name in the folder."""
        from kmip_data.format.reader import Shard

        return Shard(self.path / file)

    def bring(self, rows: Sequence[tuple[Shard, str, int, int]]) -> object:
        """Have these rows (shard, key, first, end) at hand together, for as long as the result is held."""
        return None

    def read_again(self) -> Card:
        """Return the card that is there now, for whoever waited for the lock of the folder.

        Raises ``UsageError`` where the folder holds another build by now, or none.
        """
        card = read_card(self.path)
        if card.key != self.card.key:
            raise UsageError(
                f"{self.path} holds another build than it did: another process has built into it.",
                expected=f"build key {self.card.key}",
                found=f"build key {card.key}",
                next="the same command again, for the build that is there now",
            )
        return card


def list_builds(home: Home) -> list[Build]:
    """All finished builds under ``home``, by folder name; folders without a readable card are left out."""
    found = []
    for card_path in sorted(home.built.glob(f"*/{CARD_NAME}")):
        try:
            found.append(Build(card_path.parent, read_card(card_path.parent)))
        except (DamagedInput, UsageError):  # damaged, or of a newer version
            continue
    return found

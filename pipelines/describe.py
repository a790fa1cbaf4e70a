"""Description of your own files, as a build would read them, without keeping a build."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from kmip_data.builds.home import Home
from kmip_data.columns.column_roles import ColumnRoles, column_roles_on_card
from kmip_data.errors import UsageError
from kmip_data.pipelines.build import build_own
from kmip_data.pipelines.described_parameters import DescribedParameters

Description = ColumnRoles | DescribedParameters


def describe(
    path: str | os.PathLike[str],
    recipe: str = "graphs",
    *,
    masks: str | os.PathLike[str] | None = None,
    like: Description | None = None,
    parameters: Mapping[str, object] | None = None,
) -> Description:
    """Return how ``kmip-data build`` reads your own graphs, clouds or pictures.

    A notebook shows the description as a table: the use of each column of graphs, or the parameters
    of clouds and pictures. Change it by ``with_use`` or ``with_parameters``, and build with it.

    Parameters
    ----------
    path
        File, folder or archive of graphs, or folder of clouds or pictures.
    recipe
        ``"graphs"``, ``"points"`` or ``"superpixels"``.
    masks
        Folder of masks, for superpixels.
    like
        Earlier description, with the uses and classes that the files must fit.
    parameters
        Parameters of the recipe, such as ``{"label": ["group"]}``.

    Raises
    ------
    OpenQuestions
        If the files can be read in several ways; ``questions`` has the answers.
    DamagedInput, UsageError
        As by ``build_own``.

    Examples
    --------
    >>> import kmip_data
    >>> description = kmip_data.describe("friends", parameters={"label": ["group"]})  # doctest: +SKIP
    >>> description = description.with_use("age", "category")  # doctest: +SKIP
    >>> source = {"path": "friends", "like": description}  # doctest: +SKIP
    >>> build = kmip_data.build_own("graphs", "friends", source)  # doctest: +SKIP
    """
    source: dict[str, object] = {"like": like or ""}
    if recipe == "superpixels":
        source |= {"images": path, "masks": masks}
    else:
        source["path"] = path
    with tempfile.TemporaryDirectory() as folder:
        build = build_own(
            recipe,
            "described",
            source,
            parameters=parameters,
            home=Home(Path(folder)),
            quiet=True,
        )
        if recipe != "graphs":
            return DescribedParameters.from_card(build.card)
        description = column_roles_on_card(build.card.statistics)
    if description is None:
        raise UsageError(
            f"{os.fspath(path)} has no columns to describe.",
            steps="kmip_data.build_own('graphs', NAME, {'path': …})",
        )
    return description

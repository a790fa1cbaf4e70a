"""What a map is coloured by: categories with a colour each, or numbers along a scale."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kmip_data.drawing.maps.city_map import PART_NAMES, CityMap
from kmip_data.drawing.style import PALETTE, look

PART_COLORS: Final = ("#d55e00", "#0072b2", "#b4b4b4", "#cc79a7")  #: of :data:`PART_NAMES`
BUFFER: Final = "dropped by the buffer"  #: what "no part" is where blocks of the map are the parts
RIGHT_WRONG: Final = (
    ("right (test)", PALETTE[0]),
    ("wrong (test)", PALETTE[1]),
    ("right (train, val)", f"{PALETTE[0]}59"),  # 35 %: pale on light and dark ground
    ("wrong (train, val)", f"{PALETTE[1]}59"),
)


@dataclass(frozen=True)
class Categories:
    """A category of each intersection."""

    name: str
    codes: NDArray[np.integer[Any]]  #: (N,) uint8 or uint16, position in ``labels``
    labels: tuple[str, ...]
    colors: tuple[str, ...]  #: #rrggbb or #rrggbbaa
    note: str = ""  #: a sentence below the title

    @property
    def counts(self) -> list[int]:
        """Number of intersections of each category."""
        counts: list[int] = np.bincount(self.codes, minlength=len(self.labels)).tolist()
        return counts


@dataclass(frozen=True)
class Scale:
    """A number of each intersection, (N,) float."""

    name: str
    values: NDArray[Any]
    unit: str
    note: str = ""


Layer = Categories | Scale


@dataclass(frozen=True)
class Prediction:
    """What a model says about a city."""

    run: str
    classes: NDArray[np.int64]  #: (N,), as predicted
    split: str | None  #: one of the card's, whose train and val nodes the model has seen; None: none
    folder: Path | None = None  #: of the run


def ramp(name: str, count: int, high: float = 0.94) -> tuple[str, ...]:
    """Hex colours, evenly spaced on one of matplotlib's scales, without the ends that the ground hides."""
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return tuple(to_hex(colormaps[name](float(at))) for at in np.linspace(look().darkest, high, count))


def city_layers(city: CityMap) -> list[Layer]:
    """Class, eccentricity and every split."""
    return [
        _classes(city, "class", city.classes, "equally large chunks by eccentricity"),
        Scale("eccentricity", city.eccentricity, city.unit, "longest shortest path around the intersection"),
        *(
            Categories(
                f"split {name}" if len(city.splits) > 1 else "split", codes, *_parts(name, codes), note=name
            )
            for name, codes in city.splits.items()
        ),
    ]


def prediction_layers(city: CityMap, prediction: Prediction) -> list[Layer]:
    """Where a model is right, and what it says."""
    right = prediction.classes == city.classes
    code = np.where(right, 0, 1).astype(np.uint8)
    note = f"{prediction.run}: {right.mean():.1%} right"
    labels: tuple[str, ...] = ("right", "wrong")
    colors = tuple(color for _, color in RIGHT_WRONG)[:2]
    if prediction.split is not None:
        labels, colors = zip(*RIGHT_WRONG, strict=True)
        codes = city.splits[prediction.split]
        code[codes < PART_NAMES.index("test")] += 2
        none = PART_NAMES.index("no part")
        if (codes == none).any():
            names, drawn = _parts(prediction.split, codes)
            code[codes == none] = len(labels)
            labels, colors = (*labels, names[none]), (*colors, drawn[none])
        shares = [
            f"{part} {right[codes == number].mean():.1%}"
            for number, part in enumerate(PART_NAMES[:3])
            if (codes == number).any()
        ]
        note = f"{prediction.run}: right in {', '.join(shares)}"
    return [
        Categories("right or wrong", code, labels, colors, note),
        _classes(city, "predicted class", prediction.classes, f"by {prediction.run}"),
    ]


def _classes(city: CityMap, name: str, classes: NDArray[np.int64], note: str) -> Categories:
    labels = tuple(f"{number}: {extent}" for number, extent in enumerate(city.class_ranges()))
    colors = ramp("viridis", city.num_classes)  # classes are ordered, as the eccentricities they are made of
    return Categories(name, classes.astype(np.uint8), labels, colors, note)


def _parts(split: str, codes: NDArray[np.uint8]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names and colours of the parts; "no part", or why, only where an intersection is in none."""
    count = max(3, int(codes.max(initial=0)) + 1)
    names = (*PART_NAMES[:-1], BUFFER) if split.startswith("spatial-") else PART_NAMES
    return names[:count], PART_COLORS[:count]

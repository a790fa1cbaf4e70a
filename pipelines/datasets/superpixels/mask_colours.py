"""Classes of colour masks: by the colours of a legend, or else by Pascal VOC's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from kmip_data.arrays import I64, U8
from kmip_data.errors import DamagedInput
from kmip_data.pipelines.companion_files.colour_legends import ClassColour, Colour

_WEIGHTS = np.array([65_536, 256, 1])  #: of red, green and blue in the number of a colour
_MAX_SHOWN = 8


class UnknownColours(DamagedInput):
    """A mask has colours without a class."""

    colours: Sequence[Colour] = ()


class MaskColours(NamedTuple):
    """Value of each colour of a mask."""

    values: Mapping[Colour, int]
    legend: str = ""  #: file with the colours; empty for Pascal VOC
    names: Mapping[int, str] = {}  #: by value

    def values_of_pixels(self, pixels: U8, name: str) -> I64:
        """Return the value of each pixel (H, W, 3), as (H, W).

        Raises ``UnknownColours`` for others.
        """
        numbers = pixels.astype(np.int64) @ _WEIGHTS
        known = {int(_WEIGHTS @ colour): value for colour, value in self.values.items()}
        distinct, positions = np.unique(numbers, return_inverse=True)
        unknown = [number for number in distinct.tolist() if number not in known]
        if unknown:
            colours = [(number >> 16, number >> 8 & 255, number & 255) for number in unknown]
            shown = ", ".join(map(str, colours[:_MAX_SHOWN]))
            fault = f"{self.legend} does not have" if self.legend else "is no class of Pascal VOC"
            error = UnknownColours(
                f"{name} has the colour {shown}, which {fault}.",
                steps="save masks with the class of each pixel as its value",
            )
            error.colours = colours
            raise error
        values = np.array([known[number] for number in distinct.tolist()], np.int64)
        return values[positions].reshape(numbers.shape)

    def remedy(self, colours: Collection[Colour], new_legend: str) -> str:
        """Return what to write for colours without a class, in this legend or a new one."""
        lines = [f"NAME,{red},{green},{blue}" for red, green, blue in sorted(colours)[:_MAX_SHOWN]]
        more = " and so on" if len(colours) > _MAX_SHOWN else ""
        if self.legend:
            return f"add these colours to the legend, with their classes: {' '.join(lines)}{more}"
        return (
            f"write a legend {new_legend} with these lines and a name for each: name,r,g,b "
            f"{' '.join(lines)}{more}"
        )


def voc_colours(values: Iterable[int]) -> MaskColours:
    """Return Pascal VOC's colours of some values."""
    palette = voc_palette().tolist()
    colours = {value: palette[value] for value in values if 0 <= value < len(palette)}
    return MaskColours({(red, green, blue): value for value, (red, green, blue) in colours.items()})


def colours_of_legend(
    legends: Mapping[str, Sequence[ClassColour]],
    mask_folder: str,
    class_values: Sequence[int],
    class_names: Sequence[str],
) -> MaskColours | None:
    """Return the colours of the legend in the masks' folder, or else of the first.

    A class whose name is among ``class_names`` has its value, so that masks with another legend are
    read like earlier ones. Raises ``DamagedInput`` if two classes have the same colour.
    """
    if not legends:
        return None
    legend = min(legends, key=lambda name: not name.startswith(f"{mask_folder}/"))
    value_of_name = dict(zip(class_names, class_values, strict=False))
    rows = legends[legend]
    is_known = all(row.name in value_of_name for row in rows)
    values: dict[Colour, int] = {}
    names: dict[int, str] = {}
    for row in rows:
        value = value_of_name[row.name] if is_known else row.code
        if values.setdefault(row.colour, value) != value:
            raise DamagedInput(
                f"{legend}: {row.name} and {names[values[row.colour]]} have the same colour "
                f"{row.colour}.",
                steps="give each class a colour of its own",
            )
        names[value] = row.name
    return MaskColours(values, legend, names)


def voc_palette() -> U8:
    """Return Pascal VOC's 256 colours, (256, 3): the bits of a class alternate between channels."""
    classes = np.arange(256)
    # Bits 0, 3, 6 … of a class are the high bits of red, 1, 4, 7 … of green, 2, 5 of blue.
    colours = np.zeros((256, 3), np.int64)
    for bit in range(8):
        for channel in range(3):
            colours[:, channel] |= (classes >> (3 * bit + channel) & 1) << (7 - bit)
    return colours.astype(np.uint8)

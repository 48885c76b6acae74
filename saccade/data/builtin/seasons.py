"""Generated fields: a season of six crops seen in three bands and an index, on irregular dates and through clouds.

Every crop has a curve of greenness over the year (barley a little before wheat, soya a little after maize, two harvests of rice, pasture
nearly even); a field is early or late, vigorous or poor. Red falls and near infrared rises with greenness. Each field is seen on dates of
its own.
"""

import numpy as np
from numpy.typing import NDArray

from saccade.data.series.clouds import CloudsConfig, with_clouds
from saccade.data.series.table import SeriesTable

# By crop: (middle, width and height of each season of growth, in days of the year)
_CROPS: dict[str, tuple[tuple[float, float, float], ...]] = {
    "wheat": ((134, 36, 0.75),),
    "barley": ((116, 30, 0.70),),
    "maize": ((203, 36, 0.8),),
    "soya": ((220, 29, 0.78),),
    "rice": ((120, 24, 0.7), (245, 24, 0.7)),
    "pasture": ((170, 110, 0.42),),
}
BANDS = ("blue", "red", "nir", "NDVI")
_LAST = 360


def seasons(fields: int, seed: int, clouds: float = 0.3) -> SeriesTable:
    """So many fields of one year (2020), each on dates of its own."""
    draw = np.random.default_rng([seed, 11])
    names = list(_CROPS)
    labels, days, values, lengths = [], [], [], []
    for number in range(fields):
        crop = names[number % len(names)]
        own = _dates(draw)
        greenness = _greenness(crop, own, draw)
        labels.append(crop)
        days.append(own + _FIRST)
        values.append(_bands(greenness, draw))
        lengths.append(len(own))
    table = SeriesTable(
        ids=tuple(f"field {number + 1}" for number in range(fields)),
        bands=BANDS,
        starts=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        days=np.concatenate(days),
        values=np.concatenate(values).astype(np.float32),
        labels=tuple(labels),
    )
    return with_clouds(table, CloudsConfig.model_validate({"share": clouds, "seed": seed})) if clouds else table


_FIRST = float(np.datetime64("2020-01-01").astype("datetime64[D]").astype(np.int64))


def _dates(draw: np.random.Generator) -> NDArray[np.float64]:
    """About every tenth day, some left out."""
    regular = np.arange(draw.integers(0, 10), _LAST, 10)
    kept = regular[draw.random(len(regular)) > 0.15]
    return kept.astype(np.float64)


def _greenness(crop: str, days: NDArray[np.float64], draw: np.random.Generator) -> NDArray[np.float64]:
    late, vigour = draw.normal(0, 9), draw.normal(1, 0.12)
    curve = np.full(len(days), 0.15)
    for middle, width, height in _CROPS[crop]:
        curve = curve + height * vigour * np.exp(
            -0.5 * ((days - middle - late) / (width * draw.uniform(0.85, 1.15))) ** 2
        )
    return np.clip(curve + draw.normal(0, 0.03, len(days)), 0.02, 0.98)


def _bands(greenness: NDArray[np.float64], draw: np.random.Generator) -> NDArray[np.float64]:
    soil = draw.uniform(0.9, 1.1)
    blue = 0.09 * soil * (1 - 0.7 * greenness)
    red = 0.20 * soil * (1 - 0.85 * greenness)
    nir = 0.22 + 0.30 * greenness
    noise = 1 + 0.04 * draw.standard_normal((3, len(greenness)))
    blue, red, nir = np.stack([blue, red, nir]) * noise
    return np.stack([blue, red, nir, (nir - red) / (nir + red)], axis=1)

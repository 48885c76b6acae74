"""Clouds over any table of bands, from a seed: where they are, and how thick, is known afterwards.

A thick cloud hides the ground behind bright values, a thin one mixes them in, a shadow darkens all bands. Indices (NDVI, EVI) are computed
again from the clouded bands. How often a date is clouded follows the season: some months are cloudier than others.

    clouded = (1 - thickness) · ground + thickness · bright        shadow = (1 - darkness) · ground

Axis legend: T observations, V bands.
"""

import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from saccade.config.recipe import Config
from saccade.data.series.table import SeriesTable, keeping
from saccade.errors import UserError

CLOUDED = 0.2  # an observation with more cloud than this counts as clouded

# Reflectance of a thick cloud, and the names that bands have.
_BRIGHT = {"blue": 0.48, "green": 0.46, "red": 0.46, "nir": 0.52, "swir": 0.34}
_NAMES = {
    "blue": r"blue|b0?2|band_?2",
    "green": r"green|b0?3|band_?3",
    "red": r"red|b0?4|band_?4",
    "nir": r"nir|b0?8a?|band_?8",
    "swir": r"swir\d?|mir|b1[12]",
}
_CLOUD_INDEX = 0.03  # of an index where its bands are not in the table


class CloudsConfig(Config):
    share: float = Field(
        0.0, ge=0, lt=1, description="add clouds to so many of the observations, from the seed; 0 adds none"
    )
    seed: int = Field(1, ge=0)
    thin: float = Field(0.25, ge=0, le=1, description="how many of the clouds are thin")
    shadows: float = Field(0.15, ge=0, le=1, description="how many of the clouds are shadows")
    season: float = Field(0.6, ge=0, le=1, description="how much cloudier the cloudiest month is than the mean")


def with_clouds(table: SeriesTable, config: CloudsConfig) -> SeriesTable:
    """The table with clouds of known place and thickness (in `clouds`)."""
    draw = np.random.default_rng([config.seed, 7])
    count = len(table.days)
    phase = draw.uniform(0, 365.25)
    wave = np.cos(2 * np.pi * (table.days - phase) / 365.25) if table.has_dates else np.zeros(count)
    chance = np.clip(config.share * (1 + config.season * wave), 0, 0.95)
    is_clouded = draw.random(count) < chance
    kind = draw.random(count)
    thickness = np.where(kind < config.thin, draw.uniform(CLOUDED, 0.5, count), draw.uniform(0.6, 1.0, count))
    is_shadow = kind > 1 - config.shadows
    thickness = np.where(is_shadow, draw.uniform(0.3, 0.7, count), thickness) * is_clouded
    values = table.values.astype(np.float64)
    bands = {name: column for column, band in enumerate(table.bands) if (name := band_kind(band)) is not None}
    indices = {column: band.lower() for column, band in enumerate(table.bands) if is_index(band)}
    if not bands and not indices:
        raise UserError(
            f"clouds need bands whose names say what they are (blue, red, nir, B4, NDVI, ...); the bands are {', '.join(table.bands)}"
        )
    scale = _scale(values, list(bands.values()))
    clouded = values.copy()
    noise = 1 + 0.08 * draw.standard_normal((count, values.shape[1]))
    for column in range(values.shape[1]):
        if column in indices:
            continue
        name = band_kind(table.bands[column])
        bright = scale * _BRIGHT[name] if name else np.nanpercentile(values[:, column], 98)
        cloud = (1 - thickness) * values[:, column] + thickness * bright * noise[:, column]
        clouded[:, column] = np.where(is_shadow, (1 - thickness) * values[:, column], cloud)
    for column, name in indices.items():
        computed = index_of(name, {band: clouded[:, place] / scale for band, place in bands.items()})
        if computed is None:
            mixed = (1 - thickness) * values[:, column] + thickness * _CLOUD_INDEX * index_scale(values[:, column])
            computed = np.where(is_shadow, values[:, column], mixed)
        else:
            computed = computed * index_scale(values[:, column])
        clouded[:, column] = computed
    kept = np.where((thickness > 0)[:, None], clouded, values)
    kept = np.where(np.isnan(values), np.nan, kept)
    before = np.zeros(count) if table.clouds is None else table.clouds
    return replace(table, values=kept.astype(np.float32), clouds=np.maximum(before, thickness).astype(np.float32))


def band_kind(name: str) -> str | None:
    """blue, green, red, nir or swir by the name of a band, such as B4_mean; None for others."""
    first = re.sub(r"_(mean|median|max|min)$", "", name.lower())
    return next((kind for kind, pattern in _NAMES.items() if re.fullmatch(pattern, first)), None)


def is_index(name: str) -> bool:
    return re.sub(r"_(mean|median|max|min)$", "", name.lower()) in ("ndvi", "evi", "n", "ndwi", "savi", "ndre")


def index_of(name: str, reflectance: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64] | None:
    """The index from the bands between 0 and 1; None where these are not all there."""
    red, nir, blue = (reflectance.get(band) for band in ("red", "nir", "blue"))
    if red is None or nir is None:
        return None
    if name.startswith("ndvi"):
        return (nir - red) / np.maximum(nir + red, 1e-6)
    if name.startswith("evi") and blue is not None:
        return 2.5 * (nir - red) / np.maximum(nir + 6 * red - 7.5 * blue + 1, 0.1)
    return None


def index_scale(values: NDArray[np.float64]) -> float:
    """1 for an index from -1 to 1, 10000 for one of whole numbers."""
    return 1.0 if np.nanmax(np.abs(values)) < 20 else 10_000.0


def _scale(values: NDArray[np.float64], columns: list[int]) -> float:
    """Of reflectances: 1, or 10000 where they are whole numbers."""
    return 1.0 if not columns or np.nanpercentile(values[:, columns], 99) < 20 else 10_000.0


def interpolated(table: SeriesTable) -> SeriesTable:
    """Clouded observations replaced by the straight line between the clear ones around them, series by series."""
    values = table.values.copy()
    for number in range(len(table)):
        rows = table.rows(number)
        is_clear = _require_clouds(table)[rows] < CLOUDED
        for column in range(values.shape[1]):
            own = table.values[rows, column]
            known = is_clear & np.isfinite(own)
            if known.any():
                filled = np.interp(table.days[rows], table.days[rows][known], own[known])
                values[rows, column] = np.where(is_clear, own, filled)
    return replace(table, values=values)


def removed(table: SeriesTable) -> SeriesTable:
    """Without clouded observations, but for series that would have none left."""
    is_clear = _require_clouds(table) < CLOUDED
    series = np.repeat(np.arange(len(table)), table.lengths)
    has_clear = np.bincount(series, is_clear, len(table)) > 0
    return keeping(table, is_clear | ~has_clear[series])


def _require_clouds(table: SeriesTable) -> NDArray[np.float32]:
    if table.clouds is None:
        raise UserError("no column says which observations are clouded: name it with data.cloud")
    return table.clouds

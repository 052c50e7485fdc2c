"""Every measurement by its name, in the order in which they run. Each is a module of its own."""

from bench.command import Measurement
from bench.measurements import (
    baselines,
    boards,
    catalog,
    catalog_pages,
    catalog_reader,
    catalog_updates,
    cells,
    fanout,
    growth,
    http,
    metering,
    packs,
    page,
    pipeline,
    recording,
    serving,
    single,
    size,
    verify,
    writer,
)

MEASUREMENTS: dict[str, Measurement] = {
    pipeline.NAME: pipeline.measure,
    writer.NAME: writer.measure,
    packs.NAME: packs.measure,
    cells.NAME: cells.measure,
    verify.NAME: verify.measure,
    page.NAME: page.measure,
    serving.NAME: serving.measure,
    http.NAME: http.measure,
    size.NAME: size.measure,
    fanout.NAME: fanout.measure,
    single.NAME: single.measure,
    recording.NAME: recording.measure,
    metering.NAME: metering.measure,
    growth.NAME: growth.measure,
    boards.NAME: boards.measure,
    catalog.NAME: catalog.measure,
    catalog_pages.NAME: catalog_pages.measure,
    catalog_reader.NAME: catalog_reader.measure,
    catalog_updates.NAME: catalog_updates.measure,
    baselines.NAME: baselines.measure,
}

ON_REQUEST = (baselines.NAME,)
"""Run only where they are asked for by name: others show the same against ours."""

"""The few plots that show how the work is going: on the site's page *Work*, and in the first row of the dashboard."""

from typing import Final

from feedstore.following import metrics as of_reads
from feedstore.metering.plots import Growth, Largest, Plot, Quantile
from workers.following import metrics as of_feeds

PLOTS: Final = (
    Plot(
        "visible",
        "Action to visible",
        "The time from the commit of an action until a cluster shows it",
        "seconds",
        (Quantile(of_feeds.VISIBLE_SECONDS, "cluster", 0.5), Quantile(of_feeds.VISIBLE_SECONDS, "cluster", 0.99)),
    ),
    Plot("lag", "Lag", "Messages that a group has left to do", "messages", (Largest(of_reads.LAG, "group"),)),
    Plot("cells", "Cells written", "Cells a second, by cluster", "cells/s", (Growth(of_feeds.CELLS, "cluster"),)),
    Plot(
        "pages",
        "Pages served",
        "Pages a second, by the cluster that they came from",
        "pages/s",
        (Growth(of_reads.PAGES, "cluster"),),
    ),
)

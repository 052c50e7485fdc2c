-- Refills that were asked for before this time are done: one that was published since serves them.
ALTER TABLE refills ADD COLUMN served_before_ms INTEGER NOT NULL DEFAULT 0;

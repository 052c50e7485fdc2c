-- Refills that were asked for before this time are done: one that was published since serves them.
-- The column is added only if it is missing: this may run again after it was cut off.
SET @statement = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'refills' AND column_name = 'served_before_ms'
    ),
    'DO 0',
    'ALTER TABLE refills ADD COLUMN served_before_ms BIGINT NOT NULL DEFAULT 0'
);
PREPARE refills_served FROM @statement;
EXECUTE refills_served;
DEALLOCATE PREPARE refills_served;

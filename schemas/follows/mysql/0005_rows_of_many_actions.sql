-- A row of the outbox holds the actions of a transaction, as JSON with commas between them. A row of before has one.
-- The columns are added only if they are missing: this may run again after it was cut off.
SET @statement = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'outbox' AND column_name = 'actions'
    ),
    'DO 0',
    'ALTER TABLE outbox MODIFY COLUMN body MEDIUMBLOB NOT NULL, ADD COLUMN actions INT NOT NULL DEFAULT 1'
);
PREPARE rows_of_many FROM @statement;
EXECUTE rows_of_many;
DEALLOCATE PREPARE rows_of_many;
SET @statement = IF(
    EXISTS (
        SELECT 1 FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = 'outbox_unrelayed' AND column_name = 'actions'
    ),
    'DO 0',
    'ALTER TABLE outbox_unrelayed ADD COLUMN actions INT NOT NULL DEFAULT 1'
);
PREPARE many_unrelayed FROM @statement;
EXECUTE many_unrelayed;
DEALLOCATE PREPARE many_unrelayed;

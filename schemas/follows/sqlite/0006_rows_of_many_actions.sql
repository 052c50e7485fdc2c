-- A row of the outbox holds the actions of a transaction, as JSON with commas between them. A row of before has one.
ALTER TABLE outbox ADD COLUMN actions INTEGER NOT NULL DEFAULT 1;
ALTER TABLE outbox_unrelayed ADD COLUMN actions INTEGER NOT NULL DEFAULT 1;

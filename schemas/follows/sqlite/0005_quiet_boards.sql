-- Boards that have the same lines without a row in placed_pins, but for those that got one, as when the row here was
-- written: nothing was entered in pin_index since, and no pin lost its row in placed_pins and lives. Whatever does that
-- deletes the row. No number is given twice. There are a few rows at most, written while much is re-spaced.
CREATE TABLE quiet_boards (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    board  INTEGER NOT NULL UNIQUE
);

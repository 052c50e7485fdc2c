-- By board: the pins that were moved, or that made room, in the board's order. All others are where their time and
-- their id say, and have no row here. A row is there only as long as the pin's line in pin_index is not marked deleted.
-- sequence: 38 digits, as 16 bytes, the most significant first: a number would be rounded. place_ms: the
-- created_ms of the pins whose own sequences are nearest. moved_ms: when a person last moved it, strictly rising for a
-- pin; 0 if it only made room.
CREATE TABLE placed_pins (
    board      INTEGER NOT NULL,
    sequence   BLOB NOT NULL CHECK (typeof(sequence) = 'blob' AND length(sequence) = 16),
    pin        INTEGER NOT NULL,
    place_ms   INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    moved_ms   INTEGER NOT NULL,
    PRIMARY KEY (board, sequence DESC, pin)
) WITHOUT ROWID;
CREATE UNIQUE INDEX placed_pins_pin ON placed_pins (board, pin);

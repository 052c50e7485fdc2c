-- By board: the pins that were moved, or that made room, in the board's order. All others are where their time and
-- their id say, and have no row here. A row is there only as long as the pin's line in pin_index is not marked deleted.
-- place_ms: the created_ms of the pins whose own sequences are nearest. moved_ms: when a person last moved it, strictly
-- rising for a pin; 0 if it only made room.
CREATE TABLE IF NOT EXISTS placed_pins (
    board      BIGINT NOT NULL,
    sequence   DECIMAL(38, 0) NOT NULL,
    pin        BIGINT NOT NULL,
    place_ms   BIGINT NOT NULL,
    created_ms BIGINT NOT NULL,
    moved_ms   BIGINT NOT NULL,
    PRIMARY KEY (board, sequence DESC, pin),
    UNIQUE KEY placed_pins_pin (board, pin)
) ENGINE = InnoDB;

-- What a transaction on the order of a board locks first.
CREATE TABLE IF NOT EXISTS board_orders (
    board BIGINT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

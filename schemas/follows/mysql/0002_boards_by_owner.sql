-- The boards of a user: an unfollow of the user looks at the follower's edges to them.
-- The index is made only if it is missing: this may run again after it was cut off.
SET @statement = IF(
    EXISTS (
        SELECT 1 FROM information_schema.statistics
        WHERE table_schema = DATABASE() AND table_name = 'boards' AND index_name = 'boards_owner'
    ),
    'DO 0',
    'CREATE INDEX boards_owner ON boards (owner, board)'
);
PREPARE boards_by_owner FROM @statement;
EXECUTE boards_by_owner;
DEALLOCATE PREPARE boards_by_owner;

-- The boards of a user: an unfollow of the user looks at the follower's edges to them.
CREATE INDEX boards_owner ON boards (owner, board);

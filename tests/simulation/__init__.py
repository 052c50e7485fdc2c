"""The real handlers under a seeded scheduler that interleaves them at every port call; see `world`."""

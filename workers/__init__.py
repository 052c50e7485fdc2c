"""The queue workers and the command line feedctl: they turn recorded actions into cells."""

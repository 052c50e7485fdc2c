"""Rounds of processes of an embedded home whose clocks are off."""

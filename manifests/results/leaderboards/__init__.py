"""Figures of public leaderboards, one file each."""

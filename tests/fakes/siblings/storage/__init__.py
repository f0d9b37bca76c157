"""Stand-in for tests."""

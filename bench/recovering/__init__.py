"""What a recovery is measured against: others' strategies, a simulated job that loses nodes, exhaustive search."""

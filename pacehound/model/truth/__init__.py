"""What really happened: the answers that findings are scored against."""

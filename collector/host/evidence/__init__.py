"""What an agent collects when its ranks do not go on: what each of them is doing, and what the kernel says of it."""

"""What `pacehound analyze` says about step-time logs and call files. Reading and judging them is passed in."""

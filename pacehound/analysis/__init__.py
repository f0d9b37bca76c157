"""What `pacehound analyze` says about step-time logs. Reading and watching them is passed in."""

"""The answer of `pacehound analyze`: what the logs and dumps of a job say."""

def environment(run_dir, job, base, attempt=0):
    return {**base, "PACEHOUND_RUN_DIR": str(run_dir), "PACEHOUND_JOB": job, "PACEHOUND_ATTEMPT": str(attempt)}

def environment(run_dir, job, base):
    return {**base, "PACEHOUND_RUN_DIR": str(run_dir), "PACEHOUND_JOB": job}

"""One GPU, several ranks on it, ten minutes: what Pacehound sees there and what it costs (`make gpu`).

In: one GPU, its driver, NCCL 2.32 or newer. Out: docs/measured-on-gpu.md. Without a GPU it says what it would do and
exits with 3; `--rehearse` does what can be done on the CPU (gloo), so that the commands and questions of the stages are
known to work.
"""

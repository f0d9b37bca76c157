"""What `bench.native` runs: a program that calls NCCL, an NCCL that does nothing, and an agent that sends nowhere."""

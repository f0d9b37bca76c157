"""What the hardware of a host says of itself: connections, interfaces, GPUs, processes killed for memory."""

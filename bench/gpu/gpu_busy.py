"""How long a device is busy, of what a profiler saw: as gpu_busy.cc, for the peer."""

WAITS = ("Context Sync", "Event Sync", "Stream Sync", "Stream Wait Event")


def union(intervals):
    """The time that lies in one of them at least; an interval: begin, end."""
    total, counted = 0, float("-inf")
    for begin, end in sorted(intervals):
        begin = max(begin, counted)
        if end > begin:
            total += end - begin
            counted = end
    return total


def is_work(event, on_gpu):
    """Whether one of torch.profiler's events is a kernel, copy or fill of a GPU, or an operator of
    a processor. Marks of the user and waits lie on the GPU's lines, too, and are no work."""
    if event.device_type.name != ("CUDA" if on_gpu else "CPU"):
        return False
    return not on_gpu or not (event.is_user_annotation or event.name in WAITS)

"""reduce_and_fail.py env|tcp|raise: meets by that means and sums a one over all ranks; rank 1 then fails in every attempt but
the last one (raise: in that one too), while rank 0 waits to be ended."""

import os
import sys
import time

import torch
import torch.distributed as dist


def main() -> None:
    how = sys.argv[1]
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    method = "tcp://localhost:" + os.environ["MASTER_PORT"] if how == "tcp" else "env://"
    dist.init_process_group("gloo", init_method=method, rank=rank, world_size=world_size)
    total = torch.ones(1)
    dist.all_reduce(total)
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    print(f"attempt {attempt}: sum {total.item()}", flush=True)
    if how == "raise" or attempt < int(os.environ["TORCHELASTIC_MAX_RESTARTS"]):
        if rank == 1:
            dist.destroy_process_group()  # the threads of one that is left can abort Python on its way out
            if how == "raise":
                raise ValueError("boom of rank 1")
            sys.exit(3)
        time.sleep(60)  # in a collective it could fail before rank 1 has ended
    dist.barrier()
    dist.destroy_process_group()


main()

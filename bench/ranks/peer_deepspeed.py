"""One rank of a training in DeepSpeed on the processor, over gloo: peer_deepspeed.py REQUEST, an object of bench_ranks.

Prints {"ms", "bytes"}: the median of the second half of its steps, and the most memory that the process held."""
import json
import os
import resource
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))

import deepspeed
import torch

from peer_torch import Gpt2


def main():
    want = json.loads(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(1)
    deepspeed.init_distributed("gloo", verbose=False)
    ranks, rank = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
    length, vocabulary = want["length"], want["vocabulary"]
    model = Gpt2(want["n_layer"], want["n_head"], want["n_embd"], length, vocabulary)
    config = {
        "train_batch_size": want["batch"],
        "train_micro_batch_size_per_gpu": want["batch"] // ranks,
        "bf16": {"enabled": True},
        "zero_optimization": {"stage": want["stage"]},
        "zero_force_ds_cpu_optimizer": False,
        "gradient_clipping": 1.0,
    }
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    engine, _, _, _ = deepspeed.initialize(model=model, optimizer=optimizer, config=config)
    draw, times = torch.Generator().manual_seed(rank), []
    for _ in range(want["steps"]):
        tokens = torch.randint(vocabulary, (want["batch"] // ranks, length + 1), generator=draw)
        begin = time.perf_counter()
        logits = engine(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.float().reshape(-1, vocabulary), tokens[:, 1:].reshape(-1))
        engine.backward(loss)
        engine.step()
        times.append(1e3 * (time.perf_counter() - begin))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print("\n" + json.dumps({"ms": statistics.median(times[len(times) // 2:]), "bytes": peak}))


if __name__ == "__main__":
    main()

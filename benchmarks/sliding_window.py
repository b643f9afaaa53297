"""Window layers in blocks against the stock attention: ModernBERT-base's shape with random weights, on a CPU.

python benchmarks/sliding_window.py                   # rows of 8,192 tokens, and one of 32,768
python benchmarks/sliding_window.py --tokens 2048 --long 0 --rounds 5    # a quick look

Both attentions run whole forward passes of the same model over the same row in one process, in turn, and which one
goes first alternates. Other work on the machine lengthens wall time more than CPU time, so both are shown. Peak
memory is that of one forward pass in a process of its own, without the weights.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import torch
from transformers import AutoModel, ModernBertConfig

from lmk_embed.backends.window import register

ATTENTIONS = {"blocks": register(), "stock": "sdpa"}
GOALS = {"time": 1.8, "memory": 3.0, "long": 8.0}
GIB = 2**30


@dataclass
class Times:
    """Seconds of each forward pass."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def make_model(**shape: int) -> Any:
    """Return the model of the default configuration, which is ModernBERT-base's."""
    torch.manual_seed(0)
    return AutoModel.from_config(ModernBertConfig(max_position_embeddings=65_536, **shape)).eval()


def make_row(tokens: int) -> torch.Tensor:
    """Return the ids of one row."""
    return torch.randint(5, 50_000, (1, tokens), generator=torch.Generator().manual_seed(tokens))


def forward(model: Any, row: torch.Tensor) -> torch.Tensor:
    """Read a row as the backend does: with a mask, though nothing is padded."""
    with torch.inference_mode():
        states: torch.Tensor = model(input_ids=row, attention_mask=torch.ones_like(row)).last_hidden_state
    return states


def compare(tokens: int, rounds: int) -> tuple[dict[str, Times], float]:
    """Return the times of both, and the largest difference between their states."""
    model, row = make_model(), make_row(tokens)
    times = {name: Times() for name in ATTENTIONS}
    states: dict[str, torch.Tensor] = {}
    for number in range(rounds):
        for name in sorted(ATTENTIONS, reverse=bool(number % 2)):
            model.set_attn_implementation(ATTENTIONS[name])
            wall, cpu = time.perf_counter(), time.process_time()
            states[name] = forward(model, row)
            times[name].wall.append(time.perf_counter() - wall)
            times[name].cpu.append(time.process_time() - cpu)
    return times, float((states["blocks"] - states["stock"]).abs().max())


def status(name: str) -> int:
    """Return a size in bytes from what Linux says of this process."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def measure_peak(attention: str, tokens: int) -> dict[str, int]:
    """Return what a forward pass adds to this process at its peak, and the process before, in bytes."""
    model = make_model(num_hidden_layers=4)
    model.set_attn_implementation(ATTENTIONS[attention])
    forward(model, make_row(300))
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # forget the peak so far
    before = status("VmRSS")
    forward(model, make_row(tokens))
    return {"extra": status("VmHWM") - before, "before": before}


def weights(layers: int) -> int:
    """Return the bytes of that many more layers."""
    with torch.device("meta"):
        layer = AutoModel.from_config(ModernBertConfig()).layers[-1]
    return layers * sum(parameter.numel() * parameter.element_size() for parameter in layer.parameters())


def peak(attention: str, tokens: int, threads: int) -> dict[str, int]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--peak", attention, "--tokens", str(tokens), "--threads", str(threads)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    answer: dict[str, int] = json.loads(done.stdout)
    return answer


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--long", type=int, default=32_768, help="tokens of a row for peak memory alone; 0: none")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peak", choices=ATTENTIONS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    if asked.peak:
        print(json.dumps(measure_peak(asked.peak, asked.tokens)))
        return
    times, difference = compare(asked.tokens, asked.rounds)
    print(f"one row of {asked.tokens:,} tokens, {asked.threads} threads, {asked.rounds} rounds, median")
    for kind in ("wall", "cpu"):
        stock, blocks = (median(getattr(times[name], kind)) for name in ("stock", "blocks"))
        print(f"{kind:>5} time  stock {stock:8.2f} s  blocks {blocks:8.2f} s  ratio {stock / blocks:5.2f}", end="")
        print(f"  (goal: at least {GOALS['time']})")
    peaks = {name: peak(name, asked.tokens, asked.threads)["extra"] for name in ATTENTIONS}
    print(f"peak memory  stock {peaks['stock'] / GIB:6.2f} GiB  blocks {peaks['blocks'] / GIB:6.2f} GiB", end="")
    print(f"  ratio {peaks['stock'] / peaks['blocks']:5.2f}  (goal: at least {GOALS['memory']})")
    print(f"largest difference between states: {difference:.1e}")
    if asked.long:
        whole = sum(peak("blocks", asked.long, asked.threads).values()) + weights(18)
        print(
            f"whole process at {asked.long:,} tokens: {whole / GIB:.2f} GiB  (goal: at most {GOALS['long']:.0f})"
        )


if __name__ == "__main__":
    main()

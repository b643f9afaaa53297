"""Several processes train as one would: the same loss on the same rows, with the negatives of all."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lmk_embed import LandmarkEncoder
from training.test_fit import pair_rows, span_rows, write

ROWS = {
    "contrastive": lambda: [{key: row[key] for key in ("query", "positive")} for row in pair_rows(32)],
    "chunk-contrastive": lambda: span_rows(32),
}


def train(name: str, model: Path, data: Path, out: Path, processes: int) -> list[float]:
    config = out.with_suffix(".toml")
    config.write_text(
        f'[model]\nbase = "{model}"\nmax_seq_length = 128\ngranularity = 16\n'
        f'[data]\ntrain = ["{data}"]\n'
        f"[training]\nsteps = 20\nbatch_size = {8 // processes}\nlearning_rate = 1e-3\nwarmup_steps = 0\n"
    )
    # accelerate starts processes on one machine only "for GPUs"; its setting for the CPU holds all the same.
    launch = [sys.executable, "-m", "accelerate.commands.launch", "--num_machines", "1", "--mixed_precision", "no"]
    launch += ["--dynamo_backend", "no", "--num_processes", str(processes), *["--multi_gpu"][: processes - 1]]
    command = [*launch, "-m", "lmk_embed", "train", name, "--config", str(config), "--out", str(out)]
    surroundings = os.environ | {"OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    done = subprocess.run([*command, "--device", "cpu"], capture_output=True, text=True, env=surroundings)
    assert done.returncode == 0, done.stderr
    with (out / "training" / "loss.csv").open() as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("name", sorted(ROWS))
def test_two_processes_train_as_one(name: str, tiny_model: Path, tmp_path: Path) -> None:
    # Dropout would draw other masks.
    still = tmp_path / "still"
    LandmarkEncoder.from_pretrained(tiny_model).save_pretrained(still)
    config = json.loads((still / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (still / "config.json").write_text(json.dumps(config))
    data = write(tmp_path / "rows.jsonl", ROWS[name]())
    alone = train(name, still, data, tmp_path / "one", 1)
    together = train(name, still, data, tmp_path / "two", 2)
    assert len(alone) == 2
    assert alone == pytest.approx(together, rel=1e-3)
    assert alone[1] < alone[0]

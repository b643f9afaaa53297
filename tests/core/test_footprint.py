"""What importing costs, and that memory does not follow the length of a document."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

MAIN = """
import sys
from lmk_embed.__main__ import main
sys.argv = ["lmk", "{}"]
try:
    main()
except SystemExit as stop:
    assert not stop.code
"""


def run_python(code: str, *args: str) -> str:
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize(
    "code",
    [
        "import lmk_embed",
        "import lmk_embed.files",
        MAIN.format("--version"),
        MAIN.format("--help"),
    ],
)
def test_light_things_load_no_torch_and_no_chroma(code: str) -> None:
    heavy = run_python(
        code
        + "\nimport sys; print('HEAVY', [m for m in ('torch', 'transformers', 'chromadb') if m in sys.modules])"
    )
    assert heavy.splitlines()[-1] == "HEAVY []"


MEASURE = """
import resource, sys
from lmk_embed import LandmarkEncoder
encoder = LandmarkEncoder.from_pretrained(sys.argv[1])
sentence = "The tenant pays the rent on the first working day of each month. "
encoder.encode_document(sentence * 4_000)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
text = (sentence * (int(sys.argv[2]) // len(sentence) + 1))[: int(sys.argv[2])]
document = encoder.encode_document(text)
assert document.end >= len(text) - 1 and not document.truncated
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_two_million_characters_in_bounded_memory(tiny_model: Path) -> None:
    growth = int(run_python(MEASURE, str(tiny_model), "2000000")) / 1024  # KiB to MiB
    # Text 2 MB, vectors 1.3 MB, ids and offsets 7 MB. The tokenizer's own records of the whole text would be
    # over 200 MB, all hidden states of it 70 MB.
    assert growth < 60

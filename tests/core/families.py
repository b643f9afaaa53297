"""Tiny checkpoints of every model family that must work: random weights, a real tokenizer of the family's kind.

Vocabularies are learned here from a few lines of text (the trainers of ``tokenizers`` break ties by chance), and
folders are laid out as the family's published ones are, down to the class that ``tokenizer_config.json`` names: it
decides how ``tokenizer.json`` is read.
"""

from __future__ import annotations

import json
import struct
import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

CORPUS = (
    "The deposit is three months of rent, and it is returned within ten days after the keys are handed over.",
    "Whoever reads a long document wants to know where in the document the answer stands, and nothing else.",
    "The pump must be switched off before the filter is changed; water that is left in the hose is drained.",
    "Grüße aus Köln: Die Kündigung muß schriftlich erfolgen, die Höhe der Miete beträgt 850 Euro im Monat.",
    "Über den Ärger mit der Öffnung der Tür wurde ausführlich berichtet, später auch in größeren Städten.",
    "賃貸借契約は、双方が署名した日から効力を生じ、年末まで有効とする。東京で家賃を支払う。",
    "租赁合同自双方签字之日起生效。有效期至年底。租金应于每月月底之前支付。",
    "Le café est fermé jusqu'à l'été; déjà vu, naïve façade. El señor Núñez pidió más información.",
    "def total(rows):\n    return sum(row.price for row in rows)\n\n# 12345 67890 <s> [x] {y} (z) !?",
    "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 .,;:!?'\"-_()[]<>|/\\",
)
_MERGES = 300

_QWEN_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA3_SPLIT = _QWEN_SPLIT.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)


@dataclass(frozen=True, slots=True)
class Family:
    """One kind of checkpoint.

    Attributes
    ----------
    name : str
    config : str
        Name of the ``transformers`` configuration class.
    tokenizer : callable
        Builds the ``tokenizers.Tokenizer``.
    tokenizer_class : str
        What ``tokenizer_config.json`` of the family's published folders says.
    special : mapping of str to str
        Named special tokens; a family without a padding token has none here.
    prefix : tuple of str
        Tokens in front of a text.
    landmark : str
    closes : bool
        Whether the tokenizer itself puts the landmark behind a text.
    causal : bool
        Whether a token sees only what is before it.
    settings : mapping
        Further values of the model configuration.
    """

    name: str
    config: str
    tokenizer: Callable[[], Tokenizer]
    tokenizer_class: str
    special: Mapping[str, str]
    prefix: tuple[str, ...]
    landmark: str
    closes: bool = True
    causal: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)

    def build(self, folder: Path) -> None:
        """Write the checkpoint: ``config.json``, safetensors weights and the tokenizer's files."""
        import torch
        import transformers

        tokenizer = self.tokenizer()
        self.write_tokenizer(folder, tokenizer)
        ids = {
            f"{role}_token_id": tokenizer.token_to_id(self.special[f"{role}_token"])
            if f"{role}_token" in self.special
            else None
            for role in ("pad", "bos", "eos", "cls", "sep", "mask")
        }
        shape = {
            "vocab_size": tokenizer.get_vocab_size(),
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "max_position_embeddings": 160,
            # Wide enough that every state depends visibly on its whole context.
            "initializer_range": 0.2,
        }
        config = getattr(transformers, self.config)(**shape | _WIDTHS | ids | dict(self.settings))
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = transformers.AutoModel.from_config(config)
            # Where the padding token is the landmark, training has given it a vector, not the initial zeros.
            torch.nn.init.normal_(model.get_input_embeddings().weight, std=0.2)
        model.save_pretrained(folder)

    def write_tokenizer(self, folder: Path, tokenizer: Tokenizer | None = None, **config: Any) -> None:
        """Write ``tokenizer.json`` and ``tokenizer_config.json``, with further values of the latter."""
        folder.mkdir(parents=True, exist_ok=True)
        (tokenizer or self.tokenizer()).save(str(folder / "tokenizer.json"))
        values = {"tokenizer_class": self.tokenizer_class, **self.special, **config}
        (folder / "tokenizer_config.json").write_text(json.dumps(values), encoding="utf-8")


#: Widths by every name that the architectures use; unknown ones are stored and not read.
_WIDTHS = {"hidden_size": 32, "intermediate_size": 64}


def _special(*tokens: str) -> list[AddedToken]:
    return [AddedToken(token, special=True, normalized=False) for token in tokens]


def _words(tokenizer: Tokenizer) -> Counter[str]:
    """Count the words that the tokenizer hands to its model."""
    lines = [tokenizer.normalizer.normalize_str(line) if tokenizer.normalizer else line for line in CORPUS]
    return Counter(word for line in lines for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(line))


def _learn(words: Mapping[tuple[str, ...], int], known: set[str], mark: str = "") -> list[tuple[str, str]]:
    """Return the merges of byte-pair encoding, the most frequent first, ties in alphabetical order.

    Parameters
    ----------
    words : mapping of symbols to their count
    known : set of str
        Other symbols are never merged.
    mark : str
        Stands before every symbol that continues a word.
    """
    merges: list[tuple[str, str]] = []
    while len(merges) < _MERGES:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, count in words.items():
            for pair in pairwise(word):
                pairs[pair] += count
        for pair in [pair for pair in pairs if not known.issuperset(pair)]:
            del pairs[pair]
        if not pairs:
            break
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        known = known | {_joined(best, mark)}
        words = {_merge(word, best, mark): count for word, count in words.items()}
    return merges


def _joined(pair: tuple[str, str], mark: str) -> str:
    return pair[0] + pair[1].removeprefix(mark)


def _merge(word: tuple[str, ...], pair: tuple[str, str], mark: str) -> tuple[str, ...]:
    merged: list[str] = []
    for symbol in word:
        if merged and (merged[-1], symbol) == pair:
            merged[-1] = _joined(pair, mark)
        else:
            merged.append(symbol)
    return tuple(merged)


def _numbered(*groups: list[str]) -> dict[str, int]:
    """Number tokens in order, each once."""
    return {token: number for number, token in enumerate(dict.fromkeys(chain(*groups)))}


def _template(tokenizer: Tokenizer, before: str, after: str) -> processors.TemplateProcessing:
    """Return what puts single tokens around a text; an empty string puts nothing there."""
    return processors.TemplateProcessing(
        single=" ".join(filter(None, [before, "$A", after])),
        special_tokens=[(token, tokenizer.token_to_id(token)) for token in {before, after} if token],
    )


def _word_piece(specials: list[str], pad: str, unknown: str, before: str, after: str) -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token=unknown))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    words = {(word[0], *(f"##{letter}" for letter in word[1:])): n for word, n in _words(tokenizer).items()}
    letters = sorted({symbol for word in words for symbol in word})
    pieces = [_joined(pair, "##") for pair in _learn(words, set(letters), "##")]
    tokenizer.model = models.WordPiece(_numbered(specials, letters, pieces), unk_token=unknown)
    tokenizer.add_special_tokens(_special(*specials))
    tokenizer.post_processor = _template(tokenizer, before, after)
    # Published folders of Sentence Transformers bake both into tokenizer.json.
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id(pad), pad_token=pad)
    tokenizer.enable_truncation(max_length=128)
    return tokenizer


def bert_tokenizer() -> Tokenizer:
    """WordPiece over lower-cased text without accents, padding and truncation switched on in the file."""
    return _word_piece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], "[PAD]", "[UNK]", "[CLS]", "[SEP]")


def mpnet_tokenizer() -> Tokenizer:
    """BERT's WordPiece with RoBERTa's special tokens."""
    return _word_piece(["<s>", "<pad>", "</s>", "<unk>", "<mask>", "[UNK]"], "<pad>", "[UNK]", "<s>", "</s>")


def _byte_level(
    specials: list[str],
    *,
    normalizer: normalizers.Normalizer | None = None,
    split: str | None = None,
) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if split is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(split), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tokenizer.decoder = decoders.ByteLevel()
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = _learn({tuple(word): count for word, count in _words(tokenizer).items()}, set(letters))
    tokenizer.model = models.BPE(_numbered(specials, letters, ["".join(pair) for pair in merges]), merges)
    tokenizer.add_special_tokens(_special(*specials))
    return tokenizer


def roberta_tokenizer() -> Tokenizer:
    """Byte-level BPE whose post-processor trims offsets."""
    tokenizer = _byte_level(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    return tokenizer


def modernbert_tokenizer() -> Tokenizer:
    """Byte-level BPE over composed characters."""
    tokenizer = _byte_level(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], normalizer=normalizers.NFC())
    tokenizer.post_processor = _template(tokenizer, "[CLS]", "[SEP]")
    return tokenizer


def eurobert_tokenizer() -> Tokenizer:
    """Byte-level BPE as Llama 3 has it, with both ends marked."""
    tokenizer = _byte_level(["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>", "<|pad|>"], split=_LLAMA3_SPLIT)
    around = _template(tokenizer, "<|begin_of_text|>", "<|end_of_text|>")
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), around])
    return tokenizer


def qwen_tokenizer() -> Tokenizer:
    """Byte-level BPE that puts nothing around a text."""
    tokenizer = _byte_level(["<|endoftext|>", "<|im_end|>"], normalizer=normalizers.NFC(), split=_QWEN_SPLIT)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def qwen_embedding_tokenizer() -> Tokenizer:
    """Qwen's, closing a text with another token than its end-of-text token."""
    tokenizer = qwen_tokenizer()
    closing = _template(tokenizer, "", "<|endoftext|>")
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), closing])
    return tokenizer


def _unigram(normalizer: normalizers.Normalizer) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    words = _words(tokenizer)
    letters = sorted({letter for word in words for letter in word})
    merges = _learn({tuple(word): count for word, count in words.items()}, set(letters))
    # What was merged first is likeliest, and any merged piece is likelier than its letters.
    scored = {letter: -12.0 for letter in letters} | {"".join(pair): -6 - n / 100 for n, pair in enumerate(merges)}
    # The special tokens are pieces like any other, and likelier than all: so has it every converted SentencePiece.
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer.model = models.Unigram([*((token, 0.0) for token in specials), *scored.items()], unk_id=3)
    tokenizer.add_special_tokens(_special(*specials))
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    tokenizer.post_processor = _template(tokenizer, "<s>", "</s>")
    return tokenizer


def nfkc_unigram_tokenizer() -> Tokenizer:
    """SentencePiece's Unigram with NFKC as a normalizer of the ``tokenizers`` library."""
    return _unigram(normalizers.NFKC())


def charsmap_unigram_tokenizer() -> Tokenizer:
    """SentencePiece's Unigram with NFKC as SentencePiece writes it: a compiled map of characters."""
    return _unigram(normalizers.Precompiled(charsmap()))


def charsmap() -> bytes:
    """Return a small map in SentencePiece's format: a double-array trie, then the replacements it points to."""
    sources = "ﬁﬂ…™½㎏㍿ﷺＡＢａｂ１２ｶ\u3000\u00a0\t\n\r"
    mapping = {source: unicodedata.normalize("NFKC", source) for source in sources}
    mapping |= {unicodedata.normalize("NFD", composed): composed for composed in "éèäöüßñ"}
    mapping |= {"\t": " ", "\n": " ", "\r": " ", "\u200b": " ", "\x01": "", "\x7f": ""}
    replacements, starts = b"", {}
    for source, replacement in mapping.items():
        starts[source.encode()] = len(replacements)
        replacements += replacement.encode() + b"\0"
    prefixes = sorted({key[:length] for key in starts for length in range(len(key) + 1)})
    # One block of 256 units for each node, so that no two nodes ever claim the same unit.
    blocks = {prefix: 256 * (index + 1) for index, prefix in enumerate(prefixes)}
    units = [0] * (256 * (len(prefixes) + 1))
    for prefix, block in blocks.items():
        at = blocks[prefix[:-1]] ^ prefix[-1] if prefix else 0
        units[at] = _unit_offset(at ^ block) | (prefix in starts) << 8 | (prefix[-1] if prefix else 0)
        if prefix in starts:
            units[block] = starts[prefix] | 1 << 31
    trie = struct.pack(f"<{len(units)}I", *units)
    return struct.pack("<I", len(trie)) + trie + replacements


def _unit_offset(offset: int) -> int:
    """Place an offset in a unit of the trie: 21 bits, or as many of a multiple of 256."""
    return offset << 10 if offset < 1 << 21 else offset << 2 | 1 << 9


_BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _byte_fallback(
    specials: list[str],
    normalizer: normalizers.Normalizer | None,
    pre_tokenizer: pre_tokenizers.PreTokenizer | None,
) -> Tokenizer:
    """Learn SentencePiece's BPE: spaces are letters, and unknown characters become their bytes."""
    learner = Tokenizer(models.BPE())
    learner.pre_tokenizer = pre_tokenizers.Metaspace()
    words = _words(learner)
    counts = Counter(letter for word, n in words.items() for letter in word * n)
    # Rare letters are left to their bytes.
    letters = sorted(letter for letter, count in counts.items() if count > 1 or letter.isascii())
    merges = _learn({tuple(word): n for word, n in words.items()}, set(letters))
    vocabulary = _numbered(specials, _BYTES, letters, ["".join(pair) for pair in merges])
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.add_special_tokens(_special(*specials))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def _gemma() -> Tokenizer:
    return _byte_fallback(
        ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"],
        normalizers.Replace(" ", "▁"),
        pre_tokenizers.Split(" ", behavior="merged_with_previous"),
    )


def mmbert_tokenizer() -> Tokenizer:
    """Gemma's, with both ends marked."""
    tokenizer = _gemma()
    tokenizer.post_processor = _template(tokenizer, "<bos>", "<eos>")
    return tokenizer


def gemma_tokenizer() -> Tokenizer:
    """Spaces replaced before a text is split, bytes for unknown characters, the beginning marked."""
    tokenizer = _gemma()
    tokenizer.post_processor = _template(tokenizer, "<bos>", "")
    return tokenizer


def llama_tokenizer() -> Tokenizer:
    """A space put in front of the text by the pre-tokenizer, bytes for unknown characters."""
    tokenizer = _byte_fallback(
        ["<unk>", "<s>", "</s>"], None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    )
    tokenizer.post_processor = _template(tokenizer, "<s>", "")
    return tokenizer


def llama_legacy_tokenizer() -> Tokenizer:
    """A space put in front of the text by the normalizer, as Llama 2's own file has it."""
    tokenizer = _byte_fallback(
        ["<unk>", "<s>", "</s>"],
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]),
        None,
    )
    tokenizer.post_processor = _template(tokenizer, "<s>", "")
    return tokenizer


_BERT = {
    "unk_token": "[UNK]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
_ROBERTA = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "mask_token": "<mask>",
}
_GEMMA = {
    "bos_token": "<bos>",
    "eos_token": "<eos>",
    "unk_token": "<unk>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}
_LLAMA = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
_EUROBERT = {
    "bos_token": "<|begin_of_text|>",
    "eos_token": "<|end_of_text|>",
    "mask_token": "<|mask|>",
    "pad_token": "<|pad|>",
}
#: Positions start behind the padding index, so that part of the table is not usable.
_OFFSET = {"max_position_embeddings": 162}
_LOCAL = {"layer_types": ["full_attention", "sliding_attention"], "local_attention": 8}
_GROUPED = {"num_key_value_heads": 2, "head_dim": 8}

FAMILIES = (
    Family("bert", "BertConfig", bert_tokenizer, "BertTokenizer", _BERT, ("[CLS]",), "[SEP]"),
    Family(
        "distilbert",
        "DistilBertConfig",
        bert_tokenizer,
        "DistilBertTokenizer",
        _BERT,
        ("[CLS]",),
        "[SEP]",
        settings={"dim": 32, "n_heads": 4, "n_layers": 2, "hidden_dim": 64},
    ),
    Family(
        "electra",
        "ElectraConfig",
        bert_tokenizer,
        "ElectraTokenizer",
        _BERT,
        ("[CLS]",),
        "[SEP]",
        settings={"embedding_size": 16},
    ),
    Family("nomic_bert", "NomicBertConfig", bert_tokenizer, "BertTokenizer", _BERT, ("[CLS]",), "[SEP]"),
    Family(
        "mpnet",
        "MPNetConfig",
        mpnet_tokenizer,
        "MPNetTokenizer",
        _ROBERTA | {"unk_token": "[UNK]"},
        ("<s>",),
        "</s>",
        settings=_OFFSET,
    ),
    Family(
        "roberta",
        "RobertaConfig",
        roberta_tokenizer,
        "RobertaTokenizer",
        _ROBERTA,
        ("<s>",),
        "</s>",
        settings=_OFFSET,
    ),
    Family(
        "xlm-roberta",
        "XLMRobertaConfig",
        nfkc_unigram_tokenizer,
        "PreTrainedTokenizerFast",
        _ROBERTA,
        ("<s>",),
        "</s>",
        settings=_OFFSET,
    ),
    Family("gte", "GteConfig", charsmap_unigram_tokenizer, "XLMRobertaTokenizer", _ROBERTA, ("<s>",), "</s>"),
    Family(
        "modernbert",
        "ModernBertConfig",
        modernbert_tokenizer,
        "PreTrainedTokenizerFast",
        _BERT,
        ("[CLS]",),
        "[SEP]",
        settings=_LOCAL,
    ),
    Family(
        "mmbert",
        "ModernBertConfig",
        mmbert_tokenizer,
        "GemmaTokenizer",
        _GEMMA,
        ("<bos>",),
        "<eos>",
        settings=_LOCAL,
    ),
    Family(
        "eurobert",
        "EuroBertConfig",
        eurobert_tokenizer,
        "PreTrainedTokenizerFast",
        _EUROBERT,
        ("<|begin_of_text|>",),
        "<|end_of_text|>",
        settings=_GROUPED,
    ),
    Family(
        "qwen3",
        "Qwen3Config",
        qwen_tokenizer,
        "Qwen2Tokenizer",
        {"eos_token": "<|endoftext|>"},
        (),
        "<|endoftext|>",
        closes=False,
        causal=True,
        settings=_GROUPED,
    ),
    Family(
        "qwen3-embedding",
        "Qwen3Config",
        qwen_embedding_tokenizer,
        "Qwen2Tokenizer",
        {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
        (),
        "<|endoftext|>",
        causal=True,
        settings=_GROUPED,
    ),
    Family(
        "llama",
        "LlamaConfig",
        llama_tokenizer,
        "LlamaTokenizer",
        _LLAMA,
        ("<s>",),
        "</s>",
        closes=False,
        causal=True,
        settings=_GROUPED,
    ),
    Family(
        "llama2",
        "LlamaConfig",
        llama_legacy_tokenizer,
        "PreTrainedTokenizerFast",
        _LLAMA,
        ("<s>",),
        "</s>",
        closes=False,
        causal=True,
        settings=_GROUPED,
    ),
    Family(
        "gemma3",
        "Gemma3TextConfig",
        gemma_tokenizer,
        "GemmaTokenizer",
        _GEMMA,
        ("<bos>",),
        "<eos>",
        closes=False,
        causal=True,
        settings=_GROUPED | {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8},
    ),
)

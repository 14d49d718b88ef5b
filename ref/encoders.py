"""Writes the tiny encoders that golem-embed is tested with, and what transformers makes of texts.

    python ref/encoders.py golem-embed/tests/checkpoints

A folder an architecture: seeded random weights, a tokenizer that was trained on the lines below,
the files of sentence-transformers, and golden.json with the ids and vectors of texts. Needs torch,
transformers, tokenizers and safetensors.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import (
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

LINES = [
    "the quick brown fox jumps over the lazy dog",
    "a vector is a list of numbers and a text becomes one",
    "Ünïcödé naïve café über straße 東京 日本語 привет мир",
    "search query document passage retrieval embedding model token layer",
    "1234567890 3.14159 2024-01-31 $100 50% (yes) [no] {maybe}",
] * 20
TEXTS = [
    "",
    "fox",
    "The quick brown fox jumps over the lazy dog.",
    "Ünïcödé naïve café 東京 日本語",
    "emoji 😀👍🏽 and tabs\tnew\nlines  two spaces",
    "numbers 1234567890, 3.14159; and (parentheses) [MASK] </s> <s>",
    "the lazy dog " * 60,
]
LENGTH = 96


def wordpiece(framed: tuple[str, str]) -> Tokenizer:
    """WordPiece, as BERT and MPNet have it."""
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer(lowercase=True)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    begin, end = framed
    first = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    if begin == "<s>":
        first = ["<s>", "<pad>", "</s>", "[UNK]", "<mask>"]
    made.train_from_iterator(LINES, trainers.WordPieceTrainer(vocab_size=260, special_tokens=first))
    one, two = made.token_to_id(begin), made.token_to_id(end)
    double = begin == "<s>"
    made.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} {end} $B {end}" if double else f"{begin} $A {end} $B:1 {end}:1",
        special_tokens=[(begin, one), (end, two)],
    )
    return made


def bytelevel(kind: str) -> Tokenizer:
    """BPE over bytes, as RoBERTa, ModernBERT and Qwen have it."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    first = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    if kind == "modern":
        made.normalizer = normalizers.NFC()
        first = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    if kind == "qwen":
        made.normalizer = normalizers.NFC()
        pattern = (
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
            r"|\s*[\r\n]+|\s+(?!\S)|\s+"
        )
        made.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
        first = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(
        LINES,
        trainers.BpeTrainer(
            vocab_size=340,
            special_tokens=first,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    if kind == "qwen":
        made.post_processor = processors.TemplateProcessing(
            single="$A <|endoftext|>",
            pair="$A $B <|endoftext|>",
            special_tokens=[("<|endoftext|>", made.token_to_id("<|endoftext|>"))],
        )
    elif kind == "modern":
        made.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B [SEP]",
            special_tokens=[(t, made.token_to_id(t)) for t in ("[CLS]", "[SEP]")],
        )
    else:
        made.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return made


def unigram() -> Tokenizer:
    """Unigram, as XLM-RoBERTa has it."""
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence(
        [normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    first = ["<s>", "<pad>", "</s>", "<unk>"]
    trainer = trainers.UnigramTrainer(vocab_size=220, special_tokens=first, unk_token="<unk>")
    made.train_from_iterator(LINES, trainer)
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return made


def gemma() -> Tokenizer:
    """BPE over characters, with bytes for what it does not know."""
    made = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    made.normalizer = normalizers.Replace(" ", "▁")
    made.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    first = ["<pad>", "<eos>", "<bos>", "<unk>", *(f"<0x{i:02X}>" for i in range(256))]
    made.train_from_iterator(LINES, trainers.BpeTrainer(vocab_size=460, special_tokens=first))
    plain = json.loads(made.to_str())
    plain["added_tokens"] = plain["added_tokens"][:4]
    made = Tokenizer.from_str(json.dumps(plain))
    made.post_processor = processors.TemplateProcessing(
        single="<bos> $A <eos>",
        pair="<bos> $A <eos> $B <eos>",
        special_tokens=[("<bos>", 2), ("<eos>", 1)],
    )
    return made


SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
}
BERT = (
    ("[CLS]", "[SEP]"),
    {
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "mask_token": "[MASK]",
    },
)
FAIRSEQ = {
    "pad_token": "<pad>",
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "mask_token": "<mask>",
}
GEMMA = {
    "head_dim": 16,
    "num_key_value_heads": 2,
    "sliding_window": 16,
    "use_bidirectional_attention": True,
    "query_pre_attn_scalar": 24,
    "sliding_window_pattern": 3,
    "num_hidden_layers": 4,
}


def models_of() -> dict[str, tuple]:
    """Name to tokenizer, special tokens, model, pooling, normalise, prompts, dense."""
    t = transformers
    bert, roberta = wordpiece(BERT[0]), bytelevel("roberta")
    mpnet, modern, qwen = wordpiece(("<s>", "</s>")), bytelevel("modern"), bytelevel("qwen")
    xlm, gem = unigram(), gemma()

    def size(tokenizer: Tokenizer, more: int = 0) -> int:
        return tokenizer.get_vocab_size() + more

    long = {**SMALL, "max_position_embeddings": 130}
    one = {"num_labels": 1}
    modern_config = {
        **SMALL,
        "vocab_size": size(modern, 4),
        "local_attention": 16,
        "pad_token_id": 0,
        "cls_token_id": 2,
        "sep_token_id": 3,
        "bos_token_id": 2,
        "eos_token_id": 3,
    }
    return {
        "bert": (
            bert,
            BERT[1],
            t.BertModel(t.BertConfig(vocab_size=size(bert), **SMALL)),
            "mean",
            True,
            {},
            False,
        ),
        "bert-cls": (
            bert,
            BERT[1],
            t.BertModel(t.BertConfig(vocab_size=size(bert), **SMALL)),
            "cls",
            True,
            {"query": "search: ", "document": ""},
            False,
        ),
        "distilbert": (
            bert,
            BERT[1],
            t.DistilBertModel(
                t.DistilBertConfig(
                    vocab_size=size(bert),
                    dim=32,
                    n_layers=3,
                    n_heads=4,
                    hidden_dim=48,
                    max_position_embeddings=128,
                )
            ),
            "mean",
            False,
            {},
            False,
        ),
        "mpnet": (
            mpnet,
            {**FAIRSEQ, "unk_token": "[UNK]"},
            t.MPNetModel(t.MPNetConfig(vocab_size=size(mpnet), **long)),
            "mean",
            True,
            {},
            False,
        ),
        "roberta": (
            roberta,
            FAIRSEQ,
            t.RobertaModel(t.RobertaConfig(vocab_size=size(roberta), type_vocab_size=1, **long)),
            "mean",
            True,
            {},
            False,
        ),
        "xlm-roberta": (
            xlm,
            FAIRSEQ,
            t.XLMRobertaModel(
                t.XLMRobertaConfig(vocab_size=size(xlm, 1), type_vocab_size=1, **long)
            ),
            "cls",
            True,
            {},
            False,
        ),
        "modernbert": (
            modern,
            BERT[1],
            t.ModernBertModel(t.ModernBertConfig(**modern_config)),
            "mean",
            True,
            {},
            False,
        ),
        "qwen3": (
            qwen,
            {"pad_token": "<|endoftext|>", "eos_token": "<|im_end|>"},
            t.Qwen3Model(
                t.Qwen3Config(
                    vocab_size=size(qwen, 8),
                    num_key_value_heads=2,
                    head_dim=16,
                    rope_theta=1e6,
                    **SMALL,
                )
            ),
            "last",
            True,
            {"query": "Instruct: find\nQuery:"},
            False,
        ),
        "gemma3": (
            gem,
            {
                "pad_token": "<pad>",
                "bos_token": "<bos>",
                "eos_token": "<eos>",
                "unk_token": "<unk>",
            },
            t.Gemma3TextModel(t.Gemma3TextConfig(vocab_size=size(gem, 4), **{**SMALL, **GEMMA})),
            "mean",
            True,
            {"query": "task: search result | query: "},
            True,
        ),
        "nomic": (
            bert,
            BERT[1],
            t.NomicBertModel(t.NomicBertConfig(vocab_size=size(bert, 8), **SMALL)),
            "mean",
            False,
            {"search_query": "search_query: "},
            False,
        ),
        "cross-bert": (
            bert,
            BERT[1],
            t.BertForSequenceClassification(t.BertConfig(vocab_size=size(bert), **SMALL, **one)),
            "",
            False,
            {},
            False,
        ),
        "cross-xlm-roberta": (
            xlm,
            FAIRSEQ,
            t.XLMRobertaForSequenceClassification(
                t.XLMRobertaConfig(vocab_size=size(xlm, 1), type_vocab_size=1, **long, **one)
            ),
            "",
            False,
            {},
            False,
        ),
        "cross-modernbert": (
            modern,
            BERT[1],
            t.ModernBertForSequenceClassification(
                t.ModernBertConfig(**modern_config, classifier_pooling="mean", **one)
            ),
            "",
            False,
            {},
            False,
        ),
    }


def shake(model: torch.nn.Module, generator: torch.Generator) -> None:
    """Weights that leave no term without a part in the result."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            one = p.dim() == 1 and name.endswith("weight") and float(p.abs().mean()) > 0.5
            p.copy_(noise * 0.1 + 1 if one else noise * (0.2 if p.dim() == 1 else 0.15))


def write(folder: Path, name: str, spec: tuple, seed: int) -> None:
    """A checkpoint, and what it makes of the texts."""
    tokenizer, special, model, pooling, normalise, prompts, dense = spec
    generator = torch.Generator().manual_seed(seed)
    shake(model, generator)
    model.eval()
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special)
    fast.save_pretrained(folder)

    def put(path: str, value: object) -> None:
        place = folder / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")

    if name == "nomic":  # as its authors publish it
        mine = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        theta = mine["rope_parameters"]["rope_theta"]
        put(
            "config.json",
            {
                "architectures": ["NomicBertModel"],
                "model_type": "nomic_bert",
                "vocab_size": mine["vocab_size"],
                "n_embd": 32,
                "n_head": 4,
                "n_layer": 3,
                "n_inner": 48,
                "n_positions": 128,
                "activation_function": "swiglu",
                "layer_norm_epsilon": 1e-12,
                "prenorm": False,
                "causal": False,
                "use_rms_norm": False,
                "qkv_proj_bias": False,
                "mlp_fc1_bias": False,
                "mlp_fc2_bias": False,
                "rotary_emb_base": theta,
                "rotary_emb_fraction": 1.0,
                "rotary_emb_interleaved": False,
                "rotary_emb_scale_base": None,
                "type_vocab_size": 2,
                "max_trained_positions": 128,
            },
        )
    heads = []
    if pooling:
        kinds = ["Transformer", "Pooling"]
        if dense:
            for i, (a, b) in enumerate(((32, 40), (40, 24))):
                kinds.append("Dense")
                weight = torch.randn((b, a), generator=generator) * 0.2
                heads.append(weight)
                where = folder / f"{i + 2}_Dense"
                where.mkdir(exist_ok=True)
                save_file({"linear.weight": weight}, str(where / "model.safetensors"))
                put(
                    f"{i + 2}_Dense/config.json",
                    {
                        "in_features": a,
                        "out_features": b,
                        "bias": False,
                        "activation_function": "torch.nn.modules.linear.Identity",
                    },
                )
        kinds += ["Normalize"] if normalise else []
        put(
            "modules.json",
            [
                {
                    "idx": i,
                    "name": str(i),
                    "path": "" if i == 0 else f"{i}_{kind}",
                    "type": f"sentence_transformers.models.{kind}",
                }
                for i, kind in enumerate(kinds)
            ],
        )
        modes = {"mean": "mean_tokens", "cls": "cls_token", "last": "lasttoken"}
        put(
            "1_Pooling/config.json",
            {
                "word_embedding_dimension": 32,
                **{f"pooling_mode_{mode}": kind == pooling for kind, mode in modes.items()},
            },
        )
        put("config_sentence_transformers.json", {"prompts": prompts, "default_prompt_name": None})
    put("sentence_bert_config.json", {"max_seq_length": LENGTH, "do_lower_case": False})
    cases = []
    with torch.no_grad():
        if not pooling:
            for text in TEXTS[1:]:
                e = fast(
                    "the fox",
                    text,
                    return_tensors="pt",
                    truncation="longest_first",
                    max_length=128,
                    return_token_type_ids="type_vocab" and name == "cross-bert",
                )
                score = model(**e).logits[0, 0]
                cases.append(
                    {
                        "query": "the fox",
                        "text": text,
                        "ids": e["input_ids"][0].tolist(),
                        "logit": float(score),
                    }
                )
        for text in TEXTS if pooling else ():
            ids = fast(text, truncation=True, max_length=LENGTH, return_token_type_ids=False)[
                "input_ids"
            ]
            whole = fast(text)["input_ids"]
            h = model(
                input_ids=torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
            )
            h = h.last_hidden_state[0].double()
            v = {"mean": h.mean(0), "cls": h[0], "last": h[-1]}[pooling]
            for weight in heads:
                v = weight.double() @ v
            v = v / v.norm() if normalise else v
            cases.append(
                {
                    "text": text,
                    "ids": whole,
                    "embedding": [float(np.float32(x)) for x in v],
                    "first_token": [float(np.float32(x)) for x in h[0]],
                }
            )
    (folder / "golden.json").write_text(
        json.dumps({"transformers": transformers.__version__, "cases": cases}, ensure_ascii=False)
        + "\n",
        encoding="utf-8",
    )
    for left in ("README.md", "special_tokens_map.json"):
        (folder / left).unlink(missing_ok=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    out = Path(sys.argv[1])
    for seed, (name, spec) in enumerate(models_of().items()):
        write(out / name, name, spec, seed)
        print(name)

"""Small vocabularies for the tiny models: enough of a tokenizer for both engines to load.

Three kinds, as the families have them: byte-level BPE (llama and qwen), SentencePiece with byte
fallback (gemma3) and BPE over characters (gemma4). The words are few; every text still encodes,
through bytes.
"""

from __future__ import annotations

import gguf

GEMMA_BOS = 2

WORDS = [
    "the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are", "as", "with",
    "his", "they", "at", "be", "this", "from", "have", "or", "by", "one", "had", "not", "but",
    "what", "all", "were", "when", "we", "there", "can", "an", "your", "which", "their", "said",
    "if", "do", "will", "each", "about",
]  # fmt: skip

BPE_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
SPM_SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>")
CHARACTER_SPECIAL = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "<|turn>", "<turn|>")

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
)
TURNS = (
    "{{ bos_token }}{% for message in messages %}{{'<start_of_turn>' + (message['role'] if "
    "message['role'] != 'assistant' else 'model') + '\n' + message['content'] + '<end_of_turn>\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %}"
)

TURNS_4 = TURNS.replace("<start_of_turn>", "<|turn>").replace("<end_of_turn>", "<turn|>")


def byte_letters() -> list[str]:
    """GPT-2's letter for each of the 256 bytes: itself where printable, else from U+0100 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    other = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(other)) for byte in range(256)]


def ordinary(family: str, size: int) -> tuple[int, int]:
    """The range of ids, last exclusive, that are neither special nor filling."""
    first = {"gemma3": len(SPM_SPECIAL), "gemma4": len(CHARACTER_SPECIAL)}
    return (first[family], size) if family in first else (0, size - len(BPE_SPECIAL))


def _bpe(size: int) -> tuple[list[str], list[str]]:
    """Tokens and merges: the bytes, then pieces of the common words, then the special tokens."""
    tokens, merges = byte_letters(), list[str]()
    for word in WORDS:
        piece = "\u0120"
        for letter in word:
            if len(tokens) == size - len(BPE_SPECIAL):
                return [*tokens, *BPE_SPECIAL], merges
            if piece + letter not in tokens:
                tokens.append(piece + letter)
                merges.append(f"{piece} {letter}")
            piece += letter
    raise ValueError(f"a vocabulary of {size} is more than the words give")


def _sentencepiece(size: int) -> tuple[list[str], list[float], list[int]]:
    """Tokens, scores and types: special, bytes, then letters and whole words."""
    normal, byte = int(gguf.TokenType.NORMAL), int(gguf.TokenType.BYTE)
    tokens = [*SPM_SPECIAL, *(f"<0x{value:02X}>" for value in range(256))]
    types = [int(gguf.TokenType.CONTROL)] * len(SPM_SPECIAL) + [byte] * 256
    types[3] = int(gguf.TokenType.UNKNOWN)
    pieces = ["\u2581", *(chr(letter) for letter in range(33, 127))]
    for word in WORDS:
        steps = [word[:end] for end in range(2, len(word) + 1)]
        pieces += [piece for piece in steps if piece not in pieces]
        pieces += [f"\u2581{word}"] if f"\u2581{word}" not in pieces else []
    pieces = pieces[: size - len(tokens)]
    if len(pieces) + len(tokens) != size:
        raise ValueError(f"a vocabulary of {size} is more than the words give")
    scores = [0.0] * len(tokens) + [-float(rank) for rank in range(len(pieces))]
    return tokens + pieces, scores, types + [normal] * len(pieces)


def _characters(size: int) -> tuple[list[str], list[str], list[int]]:
    """Tokens, merges and types: special, bytes, letters, then what the merges make of them."""
    normal, byte = int(gguf.TokenType.NORMAL), int(gguf.TokenType.BYTE)
    tokens = [*CHARACTER_SPECIAL, *(f"<0x{value:02X}>" for value in range(256))]
    types = [int(gguf.TokenType.CONTROL)] * len(CHARACTER_SPECIAL) + [byte] * 256
    tokens += ["\n", "\u2581", *(chr(letter) for letter in range(33, 127))]
    merges = list[str]()
    for word in WORDS:
        piece = "\u2581"
        for letter in word:
            if piece + letter not in tokens:
                tokens.append(piece + letter)
                merges.append(f"{piece} {letter}")
            if len(tokens) == size:
                return tokens, merges, types + [normal] * (size - len(types))
            piece += letter
    raise ValueError(f"a vocabulary of {size} is more than the words give")


def add(writer: gguf.GGUFWriter, family: str, size: int) -> None:
    """Adds a vocabulary of `size` tokens and a chat template as files of that family have them."""
    if family == "gemma3":
        tokens, scores, types = _sentencepiece(size)
        writer.add_tokenizer_model("llama")
        writer.add_tokenizer_pre("default")
        writer.add_token_list(tokens)
        writer.add_token_scores(scores)
        writer.add_token_types(types)
        writer.add_bos_token_id(GEMMA_BOS)
        writer.add_eos_token_id(SPM_SPECIAL.index("<end_of_turn>"))
        writer.add_unk_token_id(SPM_SPECIAL.index("<unk>"))
        writer.add_pad_token_id(SPM_SPECIAL.index("<pad>"))
        writer.add_add_bos_token(True)
        writer.add_add_space_prefix(False)
        writer.add_chat_template(TURNS)
        return
    if family == "gemma4":
        tokens, merges, types = _characters(size)
        writer.add_tokenizer_model("gemma4")
        writer.add_token_list(tokens)
        writer.add_token_scores([-1000.0] * size)
        writer.add_token_types(types)
        writer.add_token_merges(merges)
        writer.add_bos_token_id(GEMMA_BOS)
        writer.add_eos_token_id(CHARACTER_SPECIAL.index("<eos>"))
        writer.add_unk_token_id(CHARACTER_SPECIAL.index("<unk>"))
        writer.add_pad_token_id(CHARACTER_SPECIAL.index("<pad>"))
        writer.add_add_bos_token(True)
        writer.add_add_space_prefix(False)
        writer.add_chat_template(TURNS_4)
        return
    bpe, merges = _bpe(size)
    control = int(gguf.TokenType.CONTROL)
    special = len(BPE_SPECIAL)
    writer.add_tokenizer_model("gpt2")
    qwen = "qwen35" if family.startswith("qwen35") else "qwen2"
    writer.add_tokenizer_pre(qwen if family.startswith("qwen") else "smollm")
    writer.add_token_list(bpe)
    writer.add_token_types([int(gguf.TokenType.NORMAL)] * (size - special) + [control] * special)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(size - special)
    writer.add_eos_token_id(size - 1)
    writer.add_pad_token_id(size - special)
    writer.add_add_bos_token(False)
    writer.add_chat_template(CHATML)

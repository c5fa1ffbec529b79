#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tokens of PyPI's tokenizers for 10,000 lines, to compare io/tokenizer with (needs tokenizers).

    python3 bench/peers/tokenizer_lines.py FOLDER [--with PROGRAM]

Writes FOLDER/lines, and for each kind of words (gpt2, llama3, qwen2, smollm) FOLDER/KIND.json, a tokenizer.json of
6,000 tokens that is learnt from half of the lines, and FOLDER/KIND.ids; FOLDER/files/ has vocab.json and merges.txt
of the last. FOLDER/llama2.gguf has pairs by score as SentencePiece. If the environment variable ADACC_GGUF_FILE
names a GGUF file of SmolLM's (needs gguf) there are FOLDER/gguf.json, from its tokens and merges, and FOLDER/gguf.ids.
PROGRAM (reference_tokenizers) compares, and writes a tokenizer.json of what it read, of which tokenizers has the same
tokens and texts again. Without tokenizers the script is skipped (77).

Lines come from Python's library, sources and docstrings, from words in other alphabets, and from chance: code points
of all planes, emoji, control characters, digits, contractions, spaces of every kind and the ends of lines, special
tokens. `lines` has for each its length in four bytes, and its UTF-8; `.ids` its number of tokens, and these.
"""
import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import sysconfig
import unicodedata

try:
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
except ImportError:
    print("SKIPPED: no tokenizers (pip install tokenizers; -DADACC_PYTHON= names the Python)")
    sys.exit(77)

COUNT = 10_000
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
          r"\s*[\r\n]+|\s+(?!\S)|\s+")
SPECIALS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SENTENCES = [
    "Die Katze läuft über die Straße, größer als 12 Häuser.", "Ça alors ! L'été n'est-il pas déjà là ?",
    "El niño comió piñas en la montaña.", "Ο γρήγορος σκύλος πηδάει πάνω από τον φράχτη.",
    "Быстрая коричневая лиса прыгает через ленивую собаку.", "השועל החום המהיר קופץ מעל הכלב העצלן",
    "الثعلب البني السريع يقفز فوق الكلب الكسول ١٢٣", "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है १२३",
    "快速的棕色狐狸跳过了懒狗。", "素早い茶色の狐がのろまな犬を飛び越える。", "빠른 갈색 여우가 게으른 개를 뛰어넘는다.",
    "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ", "Hızlı kahverengi tilki tembel köpeğin üstünden atlar İIıi.",
    "Nhanh nhẹn con cáo nâu nhảy qua con chó lười.", "ქართული ენა", "Հայոց լեզու", "አማርኛ ፩፪፫", "Ⅷ ½ ² ൫ 〇"]
PIECES = ["'s", "'S", "'ſ", "'re", "'VE", "'ll", "'lL", "'d", "'x", "don't", "I'M", " ", "  ", "   ", "\t", "\n",
          "\r\n", "\n\n", " \n ", "\u00a0", "\u2003", "\u3000", "\u2028", "\x85", "\x0b", "0", "12", "123", "1234567",
          "3.14", "a", "Zebra", "_x", "++", "==", "!!!", "...", "👩‍👩‍👧", "🇩🇪", "😀", "❤️", "e\u0301", "\u200d", "\ufeff",
          "\x00", "\x01", "\x1b[0m", "\x7f", "\u0378", *SPECIALS, "<|im_start", "|>", "<s>", "</s>", "<unk>", "<0x41>"]


def library():
    folder = pathlib.Path(sysconfig.get_paths()["stdlib"])
    lines = []
    for path in sorted(folder.glob("*.py")) + sorted(folder.glob("test/test_*.py"))[:80]:
        lines += path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    return [line for line in lines if line.strip()]


def make_lines(rng):
    source = library()
    codes = [c for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs", "Co")]
    others = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    kinds = [
        lambda: rng.choice(source),
        lambda: "".join(rng.choices(source, k=rng.randint(2, 6))),
        lambda: " ".join(rng.choices(SENTENCES, k=rng.randint(1, 3))),
        lambda: unicodedata.normalize("NFD", " ".join(rng.choices(SENTENCES, k=2))),
        lambda: "".join(rng.choices(PIECES, k=rng.randint(1, 30))),
        lambda: "".join(chr(rng.choice(codes)) for _ in range(rng.randint(1, 40))),
        lambda: "".join(chr(rng.choice(others)) for _ in range(rng.randint(1, 10))),
        lambda: "".join(chr(rng.randrange(0x20 if rng.random() < 0.5 else 0x180)) for _ in range(rng.randint(1, 40))),
        lambda: "".join(rng.choice([rng.choice(SENTENCES), rng.choice(PIECES), rng.choice(source).strip()])
                        for _ in range(rng.randint(1, 6))),
        lambda: rng.choice("aé中 \n1.") * rng.randint(1, 300)]
    weights = [30, 10, 7, 3, 15, 10, 5, 5, 14, 1]
    return [rng.choices(kinds, weights)[0]() for _ in range(COUNT)]


def words_of(kind):
    if kind == "gpt2":
        return pre_tokenizers.ByteLevel(add_prefix_space=False)
    if kind == "smollm":
        return pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    pattern = LLAMA3 if kind == "llama3" else LLAMA3.replace("{1,3}", "")
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def learnt(kind, lines):
    made = Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    made.pre_tokenizer = words_of(kind)
    if kind == "qwen2":
        made.normalizer = normalizers.NFC()
    made.decoder = decoders.ByteLevel()
    made.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=6000, special_tokens=SPECIALS, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return made


def of_gguf(path):
    import gguf
    fields = gguf.GGUFReader(path).fields
    tokens, merges, types = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "merges", "token_type"))
    made = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(tokens)},
                                merges=[tuple(m.split(" ")) for m in merges]))
    made.pre_tokenizer = words_of("smollm")
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken(text, special=True, normalized=False)
                             for text, kind in zip(tokens, types) if kind == 3])
    return made


def write_files(tokenizer, folder):
    folder.mkdir(exist_ok=True)
    model = json.loads(tokenizer.to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = (" ".join(pair) if isinstance(pair, list) else pair for pair in model["merges"])
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n", encoding="utf-8")


def llama2(lines, path):
    """Pairs by score, as Llama 2 has them, and their GGUF file; all pairs that are a token merge, as converters do."""
    first = ["<unk>", "<s>", "</s>", *(f"<0x{b:02X}>" for b in range(256))]
    learn = Tokenizer(models.BPE())
    learn.normalizer = normalizers.Replace(" ", "\u2581")
    learn.pre_tokenizer = pre_tokenizers.Split(Regex("\u2581?[^\u2581]+|\u2581+"), "isolated")
    learn.train_from_iterator(lines, trainers.BpeTrainer(vocab_size=3000, limit_alphabet=400, show_progress=False))
    model = json.loads(learn.to_str())["model"]
    learnt_texts = sorted(model["vocab"], key=model["vocab"].get)
    rank = {}
    for i, pair in enumerate(model["merges"]):
        text = "".join(pair) if isinstance(pair, list) else pair.replace(" ", "")
        if text not in first:
            rank.setdefault(text, i)
    tokens = [*first, *(text for text in learnt_texts if text not in first)]
    if "\u2581" not in tokens:
        tokens.append("\u2581")
    vocabulary = {text: i for i, text in enumerate(tokens)}
    pieces = set(tokens[len(first):])
    scores = [0.0 if i < 259 else -float(rank.get(text, 1e5)) for i, text in enumerate(tokens)]
    merges = sorted(((rank[text], text[:i], text[i:]) for text in rank for i in range(1, len(text))
                     if text[:i] in pieces and text[i:] in pieces), key=lambda merge: merge[0])
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[merge[1:] for merge in merges], unk_token="<unk>",
                                fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    made.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(),
                                      decoders.Strip(" ", 1, 0)])
    made.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in tokens[:3]])

    def text(value):
        data = value.encode()
        return struct.pack("<Q", len(data)) + data

    def array(key, kind, data):
        return text(key) + struct.pack("<IIQ", 9, kind, len(tokens)) + data
    kinds = [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)]
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 4) +
                     text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("llama") +
                     array("tokenizer.ggml.tokens", 8, b"".join(map(text, tokens))) +
                     array("tokenizer.ggml.scores", 6, struct.pack(f"<{len(scores)}f", *scores)) +
                     array("tokenizer.ggml.token_type", 5, struct.pack(f"<{len(kinds)}i", *kinds)))
    return made


def is_alike(tokenizer, path, lines):
    """Whether a written tokenizer.json has the same tokens, and makes the same texts of them."""
    written = Tokenizer.from_file(str(path))
    other = [0, 0]
    for line in lines:
        ids = tokenizer.encode(line, add_special_tokens=False).ids
        other[0] += written.encode(line, add_special_tokens=False).ids != ids
        other[1] += (written.decode(ids, skip_special_tokens=False) != tokenizer.decode(ids, skip_special_tokens=False))
    print(f"{path}: {other[0]} lines with other tokens, {other[1]} with another text")
    return other == [0, 0]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--with", dest="program")
    options = parser.parse_args()
    folder = options.folder
    folder.mkdir(parents=True, exist_ok=True)
    lines = make_lines(random.Random(7))
    with open(folder / "lines", "wb") as file:
        for line in lines:
            data = line.encode()
            file.write(struct.pack("<I", len(data)) + data)
    made = {kind: learnt(kind, lines[::2]) for kind in ("gpt2", "llama3", "qwen2", "smollm")}
    compared = {kind: folder / f"{kind}.json" for kind in made}
    write_files(made["smollm"], folder / "files")
    made["files"], compared["files"] = made["smollm"], folder / "files"
    made["llama2"] = llama2(lines[::2], folder / "llama2.gguf")
    compared["llama2"] = folder / "llama2.gguf"
    made["llama2.json"], compared["llama2.json"] = made["llama2"], folder / "llama2.json"
    real = os.environ.get("ADACC_GGUF_FILE")
    if real:
        made["gguf"] = of_gguf(real)
        compared["gguf"] = real
    failed = False
    for kind, tokenizer in made.items():
        tokenizer.save(str(folder / (kind if kind.endswith(".json") else f"{kind}.json")))
        with open(folder / f"{kind}.ids", "wb") as file:
            for line in lines:
                ids = tokenizer.encode(line, add_special_tokens=False).ids
                file.write(struct.pack(f"<I{len(ids)}i", len(ids), *ids))
        if options.program:
            sys.stdout.flush()
            written = folder / f"{kind}.written"
            written.mkdir(exist_ok=True)
            failed |= subprocess.run([options.program, str(compared[kind]), str(folder / "lines"),
                                      str(folder / f"{kind}.ids"), str(written)]).returncode != 0
            failed |= not is_alike(tokenizer, written / "tokenizer.json", lines)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

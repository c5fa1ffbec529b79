#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Tokens of PyPI's tokenizers for 10,000 lines, to compare io/tokenizer with (needs tokenizers).

    python3 bench/peers/tokenizer_lines.py FOLDER [--with PROGRAM]

Writes FOLDER/lines, and for each kind of words (gpt2, llama3, qwen2, smollm) FOLDER/KIND.json, a tokenizer.json of
6,000 tokens that is learnt from half of the lines, and FOLDER/KIND.ids; FOLDER/files/ has vocab.json and merges.txt
of the last. FOLDER/llama2.gguf has pairs by score as SentencePiece. FOLDER/unigram_*.json are unigram models (see
unigrams()), FOLDER/sp_*.json those that PyPI's sentencepiece learnt, if it is there, and FOLDER/sp_*.gguf the same as
llama.cpp has them, with the tokens of PyPI's llama-cpp-python, if that is there. If the environment variable ADACC_GGUF_FILE names a GGUF file of
SmolLM's (needs gguf) there are FOLDER/gguf.json, from its tokens and merges, and FOLDER/gguf.ids.
PROGRAM (reference_tokenizers) compares, and writes a tokenizer.json of what it read, of which tokenizers has the same
tokens and texts again. Without tokenizers the script is skipped (77).

Lines come from Python's library, sources and docstrings, from words in other alphabets, and from chance: code points
of all planes, emoji, control characters, digits, contractions, spaces of every kind and the ends of lines, special
tokens. `lines` has for each its length in four bytes, and its UTF-8; `.ids` its number of tokens, and these.
"""
import argparse
import base64
import collections
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


def with_normalized(tokenizer):
    """Llama 2's, with tokens that are found in normalized text."""
    made = json.loads(tokenizer.to_str())
    for token in made["added_tokens"][1:]:
        token["normalized"] = True
    size = len(made["model"]["vocab"])
    for i, (text, special) in enumerate([("12 Häuser", True), ("niño comió", False), (" alors !", False)]):
        made["added_tokens"].append({"id": size + i, "content": text, "single_word": False, "lstrip": False,
                                     "rstrip": False, "normalized": True, "special": special})
    return Tokenizer.from_str(json.dumps(made))


BLOCK = "\u2581"
UNKNOWN = [["<unk>", 0.0], ["<s>", 0.0], ["</s>", 0.0]]
BYTES = [[f"<0x{b:02X}>", 0.0] for b in range(256)]


def metaspace(scheme="always", split=True, at_spaces=False):
    words = {"type": "Metaspace", "replacement": BLOCK, "prepend_scheme": scheme, "split": split}
    return {"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, words]} if at_spaces else words


def replace(pattern, content, kind="String"):
    return {"type": "Replace", "pattern": {kind: pattern}, "content": content}


def unigram(pieces, normalizers_of, words, falls_back=False, added=(), unknown=0):
    """A tokenizer of these pieces; `added` are (text, special, normalized)."""
    numbers = {piece[0]: i for i, piece in enumerate(pieces)}
    for text, *_ in added:
        numbers.setdefault(text, len(numbers))
    tokens = [{"id": numbers[text], "content": text, "single_word": False, "lstrip": False, "rstrip": False,
               "normalized": normalized, "special": special} for text, special, normalized in added]
    steps = [{"type": "Replace", "pattern": {"String": BLOCK}, "content": " "}, {"type": "ByteFallback"},
             {"type": "Fuse"}]
    if '"Prepend"' in json.dumps(normalizers_of) or (words and '"never"' not in json.dumps(words)):
        steps.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return Tokenizer.from_str(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": sorted(tokens, key=lambda t: t["id"]),
        "normalizer": {"type": "Sequence", "normalizers": normalizers_of} if normalizers_of else None,
        "pre_tokenizer": words, "post_processor": None, "decoder": {"type": "Sequence", "decoders": steps},
        "model": {"type": "Unigram", "unk_id": unknown, "vocab": pieces, "byte_fallback": falls_back}}))


def learnt_pieces(lines):
    """[text, score] of a model that PyPI's tokenizers learn, the unknown token first; rare characters are unknown."""
    kept = {c for c, _ in collections.Counter("".join(lines)).most_common(700)}
    lines = ["".join(c for c in line if c in kept) for line in lines]
    learn = Tokenizer(models.Unigram())
    learn.pre_tokenizer = pre_tokenizers.Metaspace()
    learn.train_from_iterator(lines, trainers.UnigramTrainer(
        vocab_size=6000, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False))
    pieces = json.loads(learn.to_str())["model"]["vocab"]
    return UNKNOWN + [piece for piece in pieces[1:] if piece[0] not in ("<s>", "</s>")]


def unigrams(lines):
    pieces = learnt_pieces(lines)
    ends = [(text, True, False) for text in ("<s>", "</s>")]
    specials = [(text, True, False) for text in SPECIALS]
    found_normalized = [("<|im_start|>", True, True), ("don't", False, True), ("<unk>", True, False)]
    ties = [[text, -float(len(text) + i % 2)] for i, (text, _) in enumerate(pieces[3:])]
    spaces = [{"type": "Prepend", "prepend": BLOCK}, replace(" ", BLOCK)]
    return {
        "unigram_words": unigram(pieces, [], metaspace(), added=ends + specials),
        "unigram_bytes": unigram(pieces + BYTES, spaces, None, True, [("<unk>", True, False)] + ends + specials),
        "unigram_some_bytes": unigram(pieces + BYTES[:200], spaces, None, True, ends),
        "unigram_first": unigram(pieces + BYTES, [], metaspace("first", False), True, ends + specials),
        "unigram_never": unigram(pieces, [replace("''", '"')], metaspace("never"), added=ends + specials),
        "unigram_normalized": unigram(pieces, [replace(" {2,}", " ", "Regex"), {"type": "NFC"}, *spaces], None,
                                      added=found_normalized),
        "unigram_plain": unigram(pieces, [], None),
        "unigram_ties": unigram(UNKNOWN + ties, [], metaspace(), unknown=2)}


def fields(data):
    """(number, value) of a message of Protocol Buffers."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        size = varint() if key & 7 == 2 else {1: 8, 5: 4}[key & 7]
        yield key >> 3, data[at:at + size]
        at += size


def sentencepieces(lines, folder):
    """Models learnt by sentencepiece: name, options, [text, score, type] and the bytes of its normalizer."""
    try:
        import sentencepiece
    except ImportError:
        print("no models of sentencepiece (pip install sentencepiece)")
        return
    text = folder / "sp.txt"
    text.write_text("".join(line.replace("\0", "").replace("\n", " ") + "\n" for line in lines), encoding="utf-8")
    for name, options in {"sp_nfkc": {}, "sp_bytes": {"byte_fallback": True},
                          "sp_folded": {"normalization_rule_name": "nmt_nfkc_cf", "remove_extra_whitespaces": False},
                          "sp_identity": {"normalization_rule_name": "identity", "add_dummy_prefix": False}}.items():
        path = folder / f"{name}.model"
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=str(path.with_suffix("")), vocab_size=12000, hard_vocab_limit=False,
            character_coverage=0.98, minloglevel=2, user_defined_symbols=["<|im_start|>"], **options)
        pieces, charsmap = [], b""
        for number, value in fields(path.read_bytes()):
            if number == 1:
                piece = dict(fields(value))
                pieces.append([piece[1].decode(), struct.unpack("<f", piece[2])[0], piece.get(3, 1)])
            if number == 3:
                charsmap = dict(fields(value)).get(2, b"")
        yield name, options, pieces, charsmap


def of_sentencepiece(pieces, charsmap, falls_back, words, spaces):
    charsmap = [{"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}] if charsmap else []
    added = [(text, kind == 3, False) for text, _, kind in pieces if kind in (3, 4)]
    return unigram([piece[:2] for piece in pieces], charsmap + spaces, words, falls_back, added)


def write_t5(path, pieces, charsmap, prefix, merges):
    def text(value):
        data = value.encode()
        return struct.pack("<Q", len(data)) + data

    def array(key, kind, count, data):
        return text(key) + struct.pack("<IIQ", 9, kind, count) + data

    def number(key, kind, value):
        return text(key) + struct.pack("<II" if kind == 4 else "<IB", kind, value)
    n = len(pieces)
    values = [
        text("general.architecture") + struct.pack("<I", 8) + text("t5"),
        text("tokenizer.ggml.model") + struct.pack("<I", 8) + text("t5"),
        array("tokenizer.ggml.tokens", 8, n, b"".join(text(piece[0]) for piece in pieces)),
        array("tokenizer.ggml.scores", 6, n, struct.pack(f"<{n}f", *(piece[1] for piece in pieces))),
        array("tokenizer.ggml.token_type", 5, n, struct.pack(f"<{n}i", *(piece[2] for piece in pieces))),
        number("tokenizer.ggml.add_space_prefix", 7, prefix),
        number("tokenizer.ggml.remove_extra_whitespaces", 7, merges),
        number("tokenizer.ggml.unknown_token_id", 4, 0), number("tokenizer.ggml.eos_token_id", 4, 2)]
    if charsmap:
        values.append(array("tokenizer.ggml.precompiled_charsmap", 0, len(charsmap), charsmap))
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, len(values)) + b"".join(values))


def of_llama(path):
    """llama.cpp's tokenizer of a GGUF file, with the methods of tokenizers that are used here; None without llama_cpp."""
    try:
        import llama_cpp
    except ImportError:
        print("no tokens of llama.cpp (pip install llama-cpp-python)")
        return None
    model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)

    class Of:
        def encode(self, line, add_special_tokens):
            return argparse.Namespace(ids=model.tokenize(line.encode(), add_bos=add_special_tokens, special=True))
    return Of()


def write_lines(path, lines):
    with open(path, "wb") as file:
        for line in lines:
            data = line.encode()
            file.write(struct.pack("<I", len(data)) + data)


def is_alike(tokenizer, path, lines, tokens):
    """Whether a written tokenizer.json has the same tokens, and makes the same texts of them."""
    written = Tokenizer.from_file(str(path))
    other = [0, 0]
    for line, ids in zip(lines, tokens):
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
    write_lines(folder / "lines", lines)
    made = {kind: learnt(kind, lines[::2]) for kind in ("gpt2", "llama3", "qwen2", "smollm")}
    compared = {kind: folder / f"{kind}.json" for kind in made}
    write_files(made["smollm"], folder / "files")
    made["files"], compared["files"] = made["smollm"], folder / "files"
    made["llama2"] = llama2(lines[::2], folder / "llama2.gguf")
    compared["llama2"] = folder / "llama2.gguf"
    made["llama2.json"], compared["llama2.json"] = made["llama2"], folder / "llama2.json"
    made["llama2_normalized.json"] = with_normalized(made["llama2"])
    for kind, tokenizer in unigrams(lines[::2]).items():
        made[kind] = tokenizer
    for name, how, pieces, charsmap in sentencepieces(lines[::2], folder):
        falls_back = "byte_fallback" in how
        ends = [replace("\\A +| +\\z", "", "Regex"), replace(" {2,}", " ", "Regex"), replace(" ", BLOCK),
                replace("\\A" + BLOCK, BLOCK * 2, "Regex")]
        stripped = [{"type": "Strip", "strip_left": False, "strip_right": True}, replace(" {2,}", BLOCK, "Regex")]
        made[name] = of_sentencepiece(pieces, charsmap, falls_back, metaspace("always", False), ends)
        made[f"{name}_words"] = of_sentencepiece(pieces, charsmap, falls_back, metaspace(at_spaces=True), [])
        made[f"{name}_stripped"] = of_sentencepiece(pieces, charsmap, falls_back, metaspace("first"), stripped)
        for prefix, merges in [(True, True), (False, False)]:
            path = folder / f"{name}_{prefix:d}{merges:d}.gguf"
            write_t5(path, pieces, charsmap, prefix, merges)
            model = of_llama(path)
            if model is not None:
                made[path.name], compared[path.name] = model, path
    for kind in made:
        compared.setdefault(kind, folder / (kind if kind.endswith(".json") else f"{kind}.json"))
    real = os.environ.get("ADACC_GGUF_FILE")
    if real:
        made["gguf"] = of_gguf(real)
        compared["gguf"] = real
    failed = False
    for kind, tokenizer in made.items():
        if isinstance(tokenizer, Tokenizer):
            tokenizer.save(str(folder / (kind if kind.endswith(".json") else f"{kind}.json")))
        tokens = [tokenizer.encode(line, add_special_tokens=False).ids for line in lines]
        with open(folder / f"{kind}.ids", "wb") as file:
            for ids in tokens:
                file.write(struct.pack(f"<I{len(ids)}i", len(ids), *ids))
        if options.program:
            sys.stdout.flush()
            written = folder / f"{kind}.written"
            written.mkdir(exist_ok=True)
            failed |= subprocess.run([options.program, str(compared[kind]), str(folder / "lines"),
                                      str(folder / f"{kind}.ids"), str(written)]).returncode != 0
            if isinstance(tokenizer, Tokenizer):
                failed |= not is_alike(tokenizer, written / "tokenizer.json", lines, tokens)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

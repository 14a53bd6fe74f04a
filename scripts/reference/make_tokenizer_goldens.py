"""Token numbers as Hugging Face's tokenizers give them, for tests/worker/data/tokenizer.

    python scripts/reference/make_tokenizer_goldens.py tests/data/tokenizer    # tokenizers 0.22.2, transformers 5.5.4

Trains small tokenizers of the shapes in use (NAME.json; those that are there already are kept) and writes what they make of texts.json (NAME_expected.json), and what variants of
the first one make of some of the texts (variants.json: keys of tokenizer.json to replace, and the numbers).
"""
import json
import os
import random
import sys
from collections import Counter

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

ENGLISH = """pick up the red cube and place it in the blue bowl. Don't touch the robot's arm; it isn't moving, and we've 12 of 345 objects left.
Open the drawer, then close the drawer! What is in the image? I'll push the button from the top, she'd say, they're ready; I'm not.
def reach(goal, x=1.5): return goal[0] + x * 2  # moves the gripper
Task: stack the blocks, Action: move to the goal position, Observation: the puck lies on the wooden table (near the lamp).
reach a goal position push the puck to a goal press a button from the top grasp the mug turn the faucet insert the peg
""".splitlines()
FOREIGN = """把红色的方块放进蓝色的碗里。打开抽屉，然后关上。
赤い箱を青いボウルに入れてください。ロボットのアーム
빨간 큐브를 집어 파란 그릇에 놓으세요
Нажми на кнопку сверху и открой ящик. Положи красный куб
ضع المكعب الأحمر في الوعاء الأزرق مَرْحَبًا
שים את הקובייה האדומה בקערה שָׁלוֹם
लाल घन को नीले कटोरे में रखो
หยิบลูกบาศก์สีแดงใส่ชามสีน้ำเงิน
Öffne die Schublade, größer als früher; ça va, naïve café, señor, Łódź, İstanbul, ΣΊΣΥΦΟΣ ὈΔΥΣΣΕΎΣ
""".splitlines()
SPACES = [" ", "  ", "   ", "        ", "\t", "\t\t", "\n", "\n\n", "\r\n", "\r", " \n", "\n ", " \t ", "\v", "\f", "\u00a0", " \u00a0", "\u3000", "\u2003",
          "\u2028", "\u2029", "\u0085", "\u202f", "\u205f", "\u1680", "\u180e", "\u200b", "\u200c", "\u200d", "\ufeff", "\u2060", "\x1c", "\x1f"]
CONTRACTIONS = [word + apostrophe + end for word in ("I", "it", "DON", "", " we", "x1") for apostrophe in ("'", "’", "'' ", " '", "ʼ")
                for end in ("s", "S", "t", "T", "re", "RE", "Re", "ve", "VE", "m", "M", "ll", "LL", "lL", "d", "D", "ſ", "sx", "llama", "v")]
NUMBERS = ["0", "7", "42", "123", "1234", "12345678", "3.14", "-1e-5", "1,000", "0x1F", "٣٤٥", "१२३", "１２３", "²", "½", "Ⅷ", "①", "𝟘𝟙", "〇", "5th", "x2y3", "10%", "௧௨"]
MARKS = ["e\u0301", "é", "a\u0308\u0323", "a\u0323\u0308", "n\u0303", "Å", "Å", "가", "가", "ﬁ", "ﬀ", "ﬆ", "ſ", "K", "ß", "ẞ", "İ", "ı", "Σ", "ς", "ΑΣ", "Ǆ", "ǅ", "ὈΔΟΣ", "q\u0307\u0323",
         "\u0301", "\u0301\u0301", "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢", "क्षि", "ৎ", "ำ", "\u0e33", "ｶﾞ", "㌀", "ﷺ", "…", "™", "℃", "Ω", "ᾳ", "ΐ"]
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪", "🇨🇳🇫🇷", "❤️", "☺", "1️⃣", "🤖", "🦾🤖", "👩🏿‍🚀", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "\ufe0f", "🫠"]
SIGNS = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "!!", "?!", "--", "->", "==", "!=", "//", "/*", "*/", "“", "”", "‘", "’", "«»", "—", "–", "。", "，", "！", "、", "¿", "¡", "§", "€", "£", "¥", "°", "±", "×",
         "÷", "→", "∑", "∞", "≠", "♥", "©", "¬", "¦", "´", "¨", "゛", "・", "‿", "_", "__", "a_b", "™"]
CONTROLS = ["\x00", "\x01", "\x07", "\x08", "\x1b[0m", "\x7f", "\x80", "\x9f", "\u00ad", "\u202e", "\u2066", "\ufffd", "\ufffe", "\uffff", "\U0010ffff", "\ue000", "\U000f0000", "\ufdd0"]
RARE = ["𠀀𪜀", "𝒜𝐁", "ᚠᛇ", "𓀀", "ꙮ", "߷", "ⵣ", "ᠮᠣ", "ʰʱ", "ˈ", "ª", "º", "ⓐ", "Ⓐ", "ⅷ", "々", "ゝ", "ー", "〆", "ꓸ", "\u3164", "\u115f", "ᵃ", "ᴬ", "𐐀"]
ADDED = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<fake_token_around_image>", "<end_of_utterance>", "<|im_", "im_end|>", "<image", "<row_1_col_1>", "<pad>", "[MASK]", "[W]", "[L]", "[R]", "[n]", "Ⅳoo", "<<image>>",
         " [MASK] ", "a[W]b", " [W].", "x  [L]  y", "x  [R]  y", "[R] [L]", "[R]  [R] a", "[n]é", "ROBOT", "robot", "Robot", "[W][W]", "_[W]", "é[W]", "\u0301[W]", "\u200d[W]", "<|endoftext|><|endoftext|>", " <image> \n<image>"]


def make_texts():
    pick = random.Random(6)
    words = " ".join(ENGLISH).split(" ")
    foreign = [word for line in FOREIGN for word in line.split(" ")]
    pools = [words] * 3 + [foreign] * 2 + [SPACES] * 4 + [CONTRACTIONS, NUMBERS, MARKS, EMOJI, SIGNS, CONTROLS, RARE, ADDED]
    texts = ["", " ", "a", *ENGLISH, *FOREIGN, *SPACES, *CONTRACTIONS, *NUMBERS, *MARKS, *EMOJI, *SIGNS, *CONTROLS, *RARE, *ADDED]
    texts += ["a" * 300, "ab" * 150, "aaaa " * 40, " " * 200, "\n" * 100, "é" * 100, "😀" * 40, "donaudampfschiff" * 12, "1" * 90, "=" * 120, "\u0301" * 50]
    texts += [chr(code) for code in range(0x21, 0x180) if code not in range(0x41, 0x5b)]
    texts += ["x" + chr(code) + "1 " + chr(code) for code in pick.sample([c for c in range(0x180, 0x3100)], 150)]
    texts += ["  " + word + " " for word in pick.sample(words, 30)] + [word + "\n" for word in pick.sample(words, 30)]
    while len(texts) < 2300:
        between = pick.choice(["", "", " "])
        texts.append(between.join(pick.choice(pick.choice(pools)) for _ in range(pick.randint(2, 8))))
    return texts


SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<image>", "<fake_token_around_image>", "<end_of_utterance>"]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")


def train(tokenizer, vocab_size, special=(), alphabet=None, **options):
    alphabet = pre_tokenizers.ByteLevel.alphabet() if alphabet is None else alphabet
    trainer = trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=list(special), initial_alphabet=alphabet, show_progress=False, **options)
    tokenizer.train_from_iterator(ENGLISH * 3 + FOREIGN, trainer)
    return tokenizer


def limited(size):
    """The alphabet of the most frequent characters only: others are unknown."""
    counts = Counter("▁".join(" ".join(ENGLISH + FOREIGN).lower()).replace(" ", ""))
    alphabet = sorted(counts, key=lambda character: (-counts[character], character))[:size]
    return {"alphabet": alphabet, "limit_alphabet": size}


def smollm2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 600, SPECIAL[:3])
    tokenizer.add_special_tokens(SPECIAL[3:] + [f"<row_{i}_col_{j}>" for i in (1, 2) for j in (1, 2)])
    return tokenizer


def qwen2():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train(tokenizer, 640)
    tokenizer.add_special_tokens(SPECIAL[:3])
    return tokenizer


def gpt2():
    tokenizer = Tokenizer(models.BPE(continuing_subword_prefix="", end_of_word_suffix=""))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    train(tokenizer, 560)
    tokenizer.add_tokens([AddedToken("<|endoftext|>", normalized=True, special=True)])
    return tokenizer


def llama3():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, 620)
    tokenizer.add_special_tokens(["<|begin_of_text|>", "<|end_of_text|>", "<pad>"])
    template = processors.TemplateProcessing(single="<|begin_of_text|> $A <|end_of_text|>", pair="<|begin_of_text|> $A $B", special_tokens=[
        (name, tokenizer.token_to_id(name)) for name in ("<|begin_of_text|>", "<|end_of_text|>")])
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    return tokenizer


def gemma():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    # Some bytes are absent, so that there is something unknown.
    return train(tokenizer, 600, ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{i:02X}>" for i in range(240)], **limited(60), max_token_length=12)


def odd():
    tokenizer = Tokenizer(models.BPE(unk_token="[UNK]", continuing_subword_prefix="##", end_of_word_suffix="</w>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.NFKC(), normalizers.Lowercase(), normalizers.Replace(Regex(r"\d+|(?<=x)y"), "#"), normalizers.Prepend("_")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous")])
    train(tokenizer, 500, ["[UNK]", "[CLS]", "[SEP]"], **limited(70), continuing_subword_prefix="##", end_of_word_suffix="</w>")
    tokenizer.add_tokens([AddedToken("[W]", single_word=True, normalized=False), AddedToken("[L]", lstrip=True, normalized=False), AddedToken("[R]", rstrip=True, normalized=False),
                          AddedToken("[n]", normalized=True), AddedToken("Ⅳoo", normalized=True), AddedToken("ROBOT", normalized=True, single_word=True), AddedToken("[MASK]", lstrip=True, rstrip=True, normalized=False, special=True),
                          AddedToken("  <image>", normalized=False)])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    return tokenizer


def split(pattern, behavior, invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def sequence(*parts):
    return {"type": "Sequence", "pretokenizers": [*parts, BYTES]}


# Of GPT-4, GPT-4o, DeepSeek and Kimi.
GPT4 = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
END = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
UPPER, LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"
GPT4O = rf"[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]*[{LOWER}]+{END}|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}]+[{LOWER}]*{END}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
DEEPSEEK = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
KIMI = rf"[\p{{Han}}]+|[^\r\n\p{{L}}\p{{N}}]?[{UPPER}&&[^\p{{Han}}]]*[{LOWER}&&[^\p{{Han}}]]+{END}|" + GPT4O.split(END + "|", 1)[1].replace("]+[" + LOWER + "]*", "&&[^\\p{Han}]]+[" + LOWER + "&&[^\\p{Han}]]*")
EXPRESSIONS = [GPT4, GPT4O, DEEPSEEK, KIMI, r"\s", r"\w+", r"\W", r"[\w']+", r"[^\W\d]", r"\h+", r"\d+", r"[\p{Lu}&&[^A-M]]", r"[a-c\-x&]+", r"[[a-c]x-z]", r"^.", r".$", r"x*", r"(?=[A-Z])", r"(?<=[.!?])\s", r"(?i)THE|ROBOT", r"(?:a|b)++c?", r"[\s\S]{2}",
               r"\p{Han}+|\p{Greek}", r"[^\n]+\n", r"[-+*/]", r"[a-]", r"\x41|\x{e9}", r"[$^(){}?*.|#~@-]", r"(.)\1", r"(?>a+)b", r"\p{M}", r"[ \t]+$", r"\v", r"\Aa|a\z"]
VARIANTS = {f"split by {e}": {"pre_tokenizer": sequence(split({"Regex": e}, "Isolated"))} for e in EXPRESSIONS}
VARIANTS |= {f"{behavior}{' inverted' * invert} {pattern}": {"pre_tokenizer": sequence(split(pattern, behavior, invert))}
             for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous") for invert in (False, True)
             for pattern in ({"Regex": r"\s|[aeo]"}, {"String": " "}, {"String": "[a"})}
VARIANTS |= {f"punctuation {behavior}": {"pre_tokenizer": sequence({"type": "Punctuation", "behavior": behavior})} for behavior in ("Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous")}
VARIANTS |= {
    "whitespace": {"pre_tokenizer": sequence({"type": "Whitespace"})},
    "whitespace split": {"pre_tokenizer": sequence({"type": "WhitespaceSplit"})},
    "digits together": {"pre_tokenizer": sequence({"type": "Digits", "individual_digits": False})},
    "prefix in each piece": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, BYTES | {"add_prefix_space": True, "use_regex": True}]}},
    "defaults": {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True}},
    "bytes, then a split": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [BYTES, split({"String": "Ġ"}, "MergedWithNext")]}},
    "no pre-tokenizer": {"pre_tokenizer": None},
    **{form: {"normalizer": {"type": form}} for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase")},
    "strip left": {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": False}},
    "strip right": {"normalizer": {"type": "Strip", "strip_left": False, "strip_right": True}},
    "prepend": {"normalizer": {"type": "Prepend", "prepend": "▁"}},
    "replace text": {"normalizer": {"type": "Replace", "pattern": {"String": "a."}, "content": ""}},
    "roberta": {"post_processor": {"type": "RobertaProcessing", "sep": ["<|im_end|>", 2], "cls": ["<|im_start|>", 1], "trim_offsets": True, "add_prefix_space": False}},
    "frames in frames": {"post_processor": {"type": "Sequence", "processors": [{"type": "BertProcessing", "sep": ["<|im_end|>", 2], "cls": ["<|im_start|>", 1]}, {
        "type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "x", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}], "special_tokens": {"x": {"id": "x", "ids": [0, 4], "tokens": ["<|endoftext|>", "<x>"]}}}]}},
}


def write(path, value):
    with open(path, "w", encoding="utf-8") as file:
        json.dump(value, file, ensure_ascii=False, separators=(",", ":"))
        file.write("\n")


def batches_of(tokenizer, pad):
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token=pad)
    texts = ["pick up the red cube\n", "", "reach", "Don't touch 12 of the robots, put them into the drawer; then close it."]
    cases = [(count, length, padding) for count in (2, 4) for length in (2, 5, 12, 48) for padding in ("longest", "max_length")]
    batches = []
    for count, length, padding in cases:
        out = fast(texts[:count], max_length=length, truncation=True, padding=padding, padding_side="right")
        batches.append({"texts": texts[:count], "max_length": length, "padding": padding, "tokens": out["input_ids"], "mask": out["attention_mask"]})
    return batches


def main(folder):
    os.makedirs(folder, exist_ok=True)
    texts = make_texts()
    write(f"{folder}/texts.json", texts)
    for make in (smollm2, qwen2, gpt2, llama3, gemma, odd):
        name = make.__name__
        # Training is not repeatable: ties are broken by the order of a hash table.
        if not os.path.exists(f"{folder}/{name}.json"):
            content = json.loads(make().to_str())
            if name == "gpt2":
                content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
            write(f"{folder}/{name}.json", content)
        tokenizer = Tokenizer.from_file(f"{folder}/{name}.json")
        every = 1 if make in (smollm2, qwen2, gpt2, llama3) else 2
        expected = {"every": every, "ids": [tokenizer.encode(text).ids for text in texts[::every]]}
        some = expected["ids"][::9] + [[i, i + 1] for i in range(0, tokenizer.get_vocab_size() - 1, 7)]
        expected["decode"] = [{"ids": ids, "text": tokenizer.decode(ids, skip_special_tokens=False), "plain": tokenizer.decode(ids)} for ids in some if len(ids) < 60]
        if make in (smollm2, llama3):
            expected["batches"] = batches_of(tokenizer, "<|im_end|>" if make is smollm2 else "<pad>")
        write(f"{folder}/{name}_expected.json", expected)
    base = json.load(open(f"{folder}/smollm2.json"))
    variants = []
    for number, (name, change) in enumerate(VARIANTS.items()):
        tokenizer = Tokenizer.from_str(json.dumps(base | change))
        every = 29
        variants.append({"name": name, "change": change, "first": number % every, "every": every, "ids": [tokenizer.encode(text).ids for text in texts[number % every::every]]})
    write(f"{folder}/variants.json", variants)


main(*sys.argv[1:])

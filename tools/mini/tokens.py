"""Laguna's fixed part of a vocabulary: the 70 added tokens at their ids, the byte alphabet, the token
kinds."""
UNK, EOS, SEP, PAD, MASK = 0, 2, 8, 9, 12
THINK, END_THINK, ASSISTANT, END_ASSISTANT, CALL, END_CALL = 18, 19, 23, 24, 25, 26
BYTE0 = 70
FIRST_MERGE = BYTE0 + 256
USER_DEFINED = (THINK, END_THINK, ASSISTANT, CALL, END_CALL)

_BARS = {
    0: "UNK",
    1: "CODE_START",
    2: "EOS",
    3: "CODE_END",
    4: "META_START",
    5: "META_END",
    6: "FIM_MIDDLE",
    7: "FIM_SUFFIX",
    8: "SEP",
    9: "PAD",
    10: "CLS",
    11: "FIM_START",
    12: "MASK",
    20: "SPECIAL_1",
    21: "SPECIAL_2",
    22: "SPECIAL_3",
}
_PLAIN = {
    13: "|◊|",
    14: "〈|",
    15: "|〉",
    16: "〈|/",
    17: "/|〉",
    18: "<think>",
    19: "</think>",
    23: "<assistant>",
    24: "</assistant>",
    25: "<tool_call>",
    26: "</tool_call>",
}


def added_tokens():
    """Texts of ids 0..69."""
    return [_PLAIN[i] if i in _PLAIN else f"〈|{_BARS.get(i, f'SPECIAL_{i - 19}')}|〉" for i in range(BYTE0)]


def byte_alphabet():
    """The printable stand-in of each byte in vocabulary entries, index = byte."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    out, spare = [], 256
    for b in range(256):
        if b in keep:
            out.append(chr(b))
        else:
            out.append(chr(spare))
            spare += 1
    return out


def token_types(n):
    """GGUF token_type of a vocabulary of n entries: 3 control, 4 user-defined, 1 normal."""
    return [(4 if i in USER_DEFINED else 3) if i < BYTE0 else 1 for i in range(n)]


def tokenizer_kvs(tokens, merges, template):
    """The tokenizer.* metadata; `tokens` and `merges` are in the byte alphabet."""
    t = "tokenizer.ggml."
    return [
        (t + "model", "str", "gpt2"),
        (t + "pre", "str", "laguna"),
        (t + "tokens", "arr:str", tokens),
        (t + "token_type", "arr:i32", token_types(len(tokens))),
        (t + "merges", "arr:str", merges),
        (t + "bos_token_id", "u32", EOS),
        (t + "eos_token_id", "u32", EOS),
        (t + "eot_token_id", "u32", END_ASSISTANT),
        (t + "unknown_token_id", "u32", UNK),
        (t + "seperator_token_id", "u32", SEP),
        (t + "padding_token_id", "u32", PAD),
        (t + "mask_token_id", "u32", MASK),
        (t + "add_bos_token", "bool", False),
        ("tokenizer.chat_template", "str", template),
    ]

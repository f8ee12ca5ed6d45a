#!/usr/bin/env python3
"""Writes tests/reference/bleu.txt: BLEU by sacreBLEU (pip install sacrebleu), for test_bleu.c.

    tests/reference/make_bleu.py > tests/reference/bleu.txt

A corpus is a line "corpus TOKENIZER SCORE BREVITY", then a line per sentence with a tab before its reference.
"""
from sacrebleu.metrics import BLEU

CORPORA = {
    "plain": [
        ("The cat sat on the mat.", "The cat is sitting on the mat."),
        ("A dog, two birds and a horse!", "A dog, two birds, and a horse!"),
        ("Nobody came to the house at night.", "Nobody came to the house that night."),
    ],
    "marks": [
        ("It costs $3,000.50 (about 2-3 times more).", "It costs $3,000.50 (roughly 2-3 times more)."),
        ("Wait... what?! 3.14,15 e.g. a.b.c 1.", "Wait ... what ?! 3.14,15 e.g. a.b.c 1 ."),
        ("x-ray 10-year-old -5 5- 1990-2000 / and\\or", "x-ray 10 -year-old -5 5 - 1990 -2000 and / or"),
        ("[brackets] {braces} `ticks` ~tilde^ a_b c|d @home #1", "[brackets] {braces} `ticks` ~tilde^ a_b c | d @ home # 1"),
        ("don't can't 'quoted' \"double\" l'ami", "don't cannot 'quoted' \"double\" l' ami"),
        (",. ., .5 5. ,5 5, ..", ",. ., .5 5. ,5 5, ."),
    ],
    "names": [
        ("&quot;Tom &amp; Jerry&quot; &lt;b&gt; is &amp;lt; here", "\"Tom & Jerry\" <b> is < here"),
        ("a <skipped> b c d e &amp; f", "a b c d e & f"),
        ("AT&T and R&D; x &unknown; y", "AT & T and R & D ; x & unknown ; y"),
    ],
    "unicode": [
        ("L\u2019\u00e9t\u00e9 est fini\u00a0: \u00ab\u00a0voil\u00e0\u00a0\u00bb, dit-elle.", "L\u2019\u00e9t\u00e9 est fini : \u00ab voil\u00e0 \u00bb , dit -elle ."),
        ("\u00e9. \u00e9, .\u00e9 ,\u00e9 \u0663.\u0663 a\u2003b\u3000c\u202fd e", "\u00e9 . \u00e9 , . \u00e9 , \u00e9 \u0663 . \u0663 a b c d e"),
        ("one\u2028two\u0085three\x1cfour\u1680five", "one two three four five"),
    ],
    "short": [("cat", "cat"), ("a b c", "a b c")],
    "nothing": [("alpha beta gamma delta", "one two three four"), ("", "one two")],
    "smooth": [("the cat the dog the mat on", "the dog sat on the old mat"), ("a a a a a", "a b a b")],
    "brief": [("the house is big and old", "the house is big and old and stands near the station of the town")],
    "repeats": [("the the the the the the the", "the cat is on the mat"), ("on the mat the cat is", "the cat is on the mat")],
}


def main():
    for name, pairs in CORPORA.items():
        for tokenizer in ("13a", "none"):
            result = BLEU(tokenize=tokenizer).corpus_score([p[0] for p in pairs], [[p[1] for p in pairs]])
            print(f"corpus {tokenizer} {result.score!r} {result.bp!r} {name}")
            for ours, reference in pairs:
                assert not set("\t\n") & set(ours + reference)
                print(f"{ours}\t{reference}")


main()

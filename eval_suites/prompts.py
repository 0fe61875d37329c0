"""Seeded real text for prompts: prose in several languages, dialogue, code and tables, written for this project."""

from __future__ import annotations

import random

PASSAGES: tuple[str, ...] = (
    "The ferry leaves the north pier at seven, long before the market opens, and on clear mornings the crew counts "
    "the herons along the breakwater instead of looking at the clock. Nobody remembers who began the habit.",
    "Le boulanger pèse la farine deux fois : une fois pour la recette, une fois pour sa mère, qui ne croyait jamais "
    "la première balance. Le levain, lui, ne se pèse pas ; il se devine à l'odeur, un peu avant l'aube.",
    "Wer den alten Steinbruch vom Dorf aus erreichen will, nimmt besser nicht die Straße. Der Pfad hinter der Mühle "
    "ist kürzer, und im Oktober liegen dort so viele Walnüsse, dass man kaum einen Fuß auf die Erde setzt.",
    "La abuela guardaba los mapas en una lata de galletas. Decía que un camino doblado se recuerda mejor que uno "
    "recto, y cada verano añadía una línea nueva con lápiz rojo, aunque ya casi no saliera de casa.",
    "祖母の庭には三本の柿の木があった。いちばん古い木は実が渋く、いちばん若い木はまだ実をつけず、真ん中の木だけが毎年"
    "甘い実を落とした。私たちはその順番が変わる日を待っていた。",
    "Старый трамвай сворачивал у реки и всегда замедлял ход, будто хотел рассмотреть лодки. Кондуктор называл "
    "остановку шёпотом, и пассажиры выходили так тихо, что чайки не взлетали.",
    "def merge(left, right):\n    out, i, j = [], 0, 0\n    while i < len(left) and j < len(right):\n        "
    "if left[i] <= right[j]:\n            out.append(left[i]); i += 1\n        else:\n            "
    "out.append(right[j]); j += 1\n    return out + left[i:] + right[j:]\n",
    "SELECT station, date(taken_at) AS day, avg(level_cm) FROM gauge WHERE river = 'Weser' GROUP BY station, day "
    "HAVING count(*) > 20 ORDER BY day DESC, station LIMIT 50;\n",
    "A: Did the parcel come?\nB: It came, but the wrong way round: first the receipt, then an empty box, and the "
    "lamp itself a week later.\nA: And does it work?\nB: It hums. I have decided that it is meant to.\n",
    "User: My plot is two metres by five. How many tomato plants fit?\nAssistant: Leave sixty centimetres between "
    "plants and a path in the middle; fourteen fit without crowding, sixteen if you prune hard.\nUser: ",
    "| valve | opens at (bar) | closes at (bar) | last test |\n|---|---|---|---|\n| V1 | 6.2 | 5.8 | March |\n"
    "| V2 | 6.4 | 5.9 | March |\n| V3 | 7.0 | 6.1 | overdue |\n",
    "If eleven boxes hold twelve jars each and three boxes are missing two jars, the shelf carries 126 jars. Take "
    "away the nine that leaked, divide by the seven days, and the rest of the sum is seventeen a day, less two.",
    '{"kettle": {"volume_l": 1.7, "power_w": 2200, "colours": ["red", "slate"]}, "toaster": {"slots": 4, '
    '"defrost": true, "colours": ["slate"]}}\n',
    "Abstract. We measure how often a lighthouse keeper's log agrees with the tide tables of the same year. Over "
    "four hundred entries the difference has a median of six minutes; the tails belong to storms and to Sundays.",
)


def select_prompts(count: int, *, seed: int, min_bytes: int = 4, max_bytes: int = 160) -> tuple[str, ...]:
    """`count` distinct pieces of the passages, ragged in length (UTF-8 bytes between the bounds, about).

    Args:
        count: How many.
        seed: The same seed gives the same prompts on every machine.
        min_bytes: Shortest piece.
        max_bytes: Longest piece; characters are never cut.
    """
    rng = random.Random(seed)
    chosen: list[str] = []
    while len(chosen) < count:
        passage = PASSAGES[rng.randrange(len(PASSAGES))]
        wanted = rng.randint(min_bytes, max_bytes)
        start = rng.randrange(max(1, len(passage) - wanted // 2))
        piece = passage[start:].encode()[:wanted].decode(errors="ignore")
        if len(piece.encode()) >= min_bytes and piece not in chosen:
            chosen.append(piece)
    return tuple(chosen)


def long_prompt(num_bytes: int, *, seed: int) -> str:
    """At least `num_bytes` of UTF-8 text: passages in a seeded order, repeated as needed."""
    rng = random.Random(seed)
    parts: list[str] = []
    size = 0
    while size < num_bytes:
        passage = PASSAGES[rng.randrange(len(PASSAGES))] + "\n"
        parts.append(passage)
        size += len(passage.encode())
    return "".join(parts)

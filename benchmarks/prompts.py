"""Twenty prompts of many kinds and one long text: what tokenizers and engines are compared on. Not here: results.

They are stored with llama.cpp's answers in tests/vectors/smollm2.json; change one, and write that file anew.
"""

ORCHARD = (
    "The orchard lay on the north side of the hill, where the frost stayed longest in spring. Every tree had a number "
    "painted on its trunk, and every number had a page in the book that hung by the door of the shed. Whoever pruned a "
    "tree wrote down the day, the weather, and how many buckets of wood were carried away. Nobody remembered who had "
    "begun the book. The first entries were in a hand so small that one needed a glass to read them, and they spoke of "
    "varieties that could no longer be bought: a pear that kept until June, a plum that was picked green and sold to "
    "the dye works, an apple whose only virtue was that wasps disliked it. In the dry years the entries were short. In "
    "the year of the flood there was a single line, which said that the river had come as far as tree forty-one and "
    "had then gone home. "
)
LEDGER = (
    "Meeting of 14 March, present 11 of 13. The treasurer reported an income of 48,210.55 and expenses of 39,877.10; "
    "the difference goes to the roof. Item 2: the pump. Two offers were opened, one for 6,400 and one for 7,150 with "
    "a guarantee of ten years. After some discussion the second was preferred by 8 votes to 3. Item 3: the path along "
    "the canal is closed from kilometre 2.4 to kilometre 3.1 until the bank is firm again. Item 4: Mrs. Okafor asks "
    "whether the library could open on Saturdays from 9:30 to 13:00; a volunteer is sought. "
)
CODE = '''class Ring:
    """A fixed number of slots, overwritten in turn."""

    def __init__(self, size: int) -> None:
        self.slots: list[float] = [0.0] * size
        self.next = 0

    def push(self, value: float) -> None:
        self.slots[self.next] = value
        self.next = (self.next + 1) % len(self.slots)

    def mean(self) -> float:
        return sum(self.slots) / len(self.slots)
'''

PROMPTS: dict[str, str] = {
    "capital": "The capital of France is",
    "story": "Once upon a time, in a village at the edge of the sea, a lighthouse keeper found a letter that",
    "explain": "Photosynthesis is how plants turn light into chemical energy. It happens in two stages:",
    "dialogue": "\"Don't you dare,\" she whispered. \"I'd've told you, if you'd asked me!\" He couldn't answer;",
    "chat": "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n",
    "chat-list": (
        "<|im_start|>system\nYou answer in short numbered lists.<|im_end|>\n<|im_start|>user\n"
        "Name three things to check before a long bicycle ride.<|im_end|>\n<|im_start|>assistant\n"
    ),
    "python": 'def fibonacci(n: int) -> int:\n    """The n-th Fibonacci number."""\n    if n < 2:\n        return',
    "c": "#include <stdio.h>\n\nint main(int argc, char **argv)\n{\n\tfor (int i = 0; i < argc; ++i) {\n\t\tprintf(",
    "sql": "SELECT c.name, COUNT(*) AS orders\nFROM customers c\nJOIN orders o ON o.customer_id = c.id\nWHERE",
    "json": '{"name": "Ada", "born": 1815, "tags": ["mathematics", "engines"], "address": {"city": "',
    "digits": "1 2 3 5 8 13 21 34 55 89 144 233 377 610 987 1597 2584",
    "sums": "12 + 30 = 42\n700 + 77 = 777\n1024 * 1024 = 1048576\n3.14159 * 2 =",
    "emoji": "The weather today: ☀️ in the morning, 🌧️ at noon, 🌈 in the evening. My mood: 😀😢🤔👩‍🚀🇫🇷",
    "chinese": "北京是中国的首都。今天天气很好，我们去公园散步吧。学习语言需要",
    "scripts": "Привет, мир! こんにちは世界。 مرحبا بالعالم. Γειά σου Κόσμε. नमस्ते दुनिया. Hello,",
    "accents": "Les élèves naïfs étaient fâchés: «Où est passé l'été?» Über größere Straßen führt",
    "spaces": "  two spaces   three\t\ttabs\n\n\n   indented\r\nwindows line\n \n end ",
    "symbols": "∀x∈ℝ: x² ≥ 0 ⇒ √(x²) = |x| — $\\int_0^1 x\\,dx = \\frac{1}{2}$ @#%^&*()_+{}[]<>~`",
    "long-prose": ORCHARD + ORCHARD[:120] + "In the book's last year,",
    "long-mixed": LEDGER + "\n\n```python\n" + CODE + "```\n\nThe class above",
}
TEXT = ORCHARD + "\n\n" + LEDGER + "\n\n" + CODE + "\n\n" + PROMPTS["explain"] + " " + PROMPTS["accents"] + " "

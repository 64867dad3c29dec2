"""Two hundred short texts to be tagged, an instruction of about 320 ids and eight labels. Not here: asking anybody.

Texts are put together by a seeded draw of sentences: 30 to 80 words each, no two alike; same number, same text.
"""

import random
from typing import Any

MOST_WORDS = 80
LABELS = ("billing", "delivery", "damage", "account", "refund", "question", "praise", "other")
INSTRUCTION = (
    "You sort messages that customers send to a mail-order house for garden tools. Read the message and choose the one "
    "label that fits it best. The labels are: billing, for everything about invoices, prices, payments, reminders and "
    "taxes; delivery, when a parcel is late, lost, sent to a wrong address, or when somebody asks where it is; damage, "
    "when an article arrived broken, stopped working within the warranty, or when parts are missing from the box; "
    "account, for passwords, addresses, newsletters, the deletion of data and anything else about the customer's own "
    "records; refund, when the customer wants money back, has returned an article, or asks how a return works; "
    "question, when something about an article is asked before it is bought, such as its weight, its size, spare parts "
    "or whether it fits another one; praise, when the customer is content and wants nothing; other, for advertising, "
    "applications, letters that were meant for somebody else, and whatever fits none of the labels above. When two "
    "labels fit, take the one that says what has to be done next: a broken spade for which money is wanted back is a "
    "refund, a broken spade for which another one is wanted is damage. Do not be misled by a friendly or an angry tone "
    "of the message. Names, order numbers and dates do not matter. The message may be in several paragraphs and may "
    "quote an earlier answer of ours; judge its newest part only. Answer with a JSON object that has the one member "
    "label, and with nothing else."
)
FIRST = (
    "Good morning, I am writing about order {n} of last {day}.",
    "Hello, this concerns the {thing} I bought in {month}.",
    "Dear team, my customer number is {n}.", "Hi there, a short note from {town}.",
)  # fmt: skip
CORE = {
    "billing": ("The invoice lists the {thing} twice, although only one was ordered.",
                "A reminder came today for an amount that I paid on {day} by bank transfer."),
    "delivery": ("The parcel with the {thing} has been shown as on its way for {n} hours and nobody can tell me where.",
                 "Your driver left the {thing} at a house in {town} where I do not live."),
    "damage": ("The handle of the {thing} was split when I opened the box, and two screws were missing.",
               "After {k} days the {thing} makes a grinding noise and stops on its own; please send another."),
    "account": ("I cannot log in any more, and the link for a new password never arrives.",
                "Please delete my records and take me off the list for the newsletter."),
    "refund": ("I sent the {thing} back {k} days ago and would like to have my money returned now.",
               "The {thing} is not what I expected; how do I return it, and when is the price paid back?"),
    "question": ("Before I order: does the {thing} fit a shaft of {k} millimetres, and how heavy is it?",
                 "Are spare blades for the {thing} still sold, and for how many years?"),
    "praise": ("The {thing} came a day early and works better than the one I had for {k} years; thank you.",
               "I only wanted to say that your advice about the {thing} was right in every point."),
    "other": ("We offer to place your advertisement in {n} newspapers of the region at a special price.",
              "My son looks for a summer job in {month} and can lift heavy things."),
}  # fmt: skip
MORE = (
    "I have been a customer for {k} years and never had a reason to write before.",
    "The weather in {town} has been dry, so there is a good deal of work waiting.",
    "My neighbour bought the same {thing} in {month} and had a different story to tell.",
    "I tried to call on {day}, but after {k} minutes of music I gave up.",
    "You can reach me in the evening, or at any time on {day}.",
    "A picture is attached, and the number on the label is {n}.",
)
LAST = ("Kind regards from {town}.", "Thank you for a quick answer.", "I hope to hear from you by {day}.")
WORDS: dict[str, tuple[str, ...]] = {
    "thing": ("hedge trimmer", "spade", "wheelbarrow", "garden hose", "lawn mower", "pruning saw", "rake", "axe"),
    "town": ("Lindau", "Harwich", "Arles", "Tartu", "Ghent", "Evora", "Ystad", "Trieste"),
    "day": ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"),
    "month": ("March", "April", "May", "June", "September", "October"),
}
SCHEMA: dict[str, Any] = {
    "type": "object", "properties": {"label": {"type": "string", "enum": list(LABELS)}}, "required": ["label"],
    "additionalProperties": False,
}  # fmt: skip
FORM = {"type": "json_schema", "json_schema": {"name": "tag", "strict": True, "schema": SCHEMA}}


def text(n: int) -> str:
    """The n-th text."""
    dice = random.Random(n)
    core = CORE[LABELS[n % len(LABELS)]]
    tail = dice.sample(MORE, dice.randint(1, 3))
    words = {name: dice.choice(some) for name, some in WORDS.items()}
    parts = [dice.choice(FIRST), dice.choice(core), dice.choice(LAST), *tail]
    while len(" ".join(parts).split()) > MOST_WORDS - 5:  # a thing and a town may be two words
        parts.pop()
    return " ".join(parts).format(n=10_000 + n, k=dice.randint(2, 19), **words)


def messages(n: int) -> list[dict[str, str]]:
    """The conversation that asks for the n-th text's label."""
    return [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": text(n)}]

"""Over 2,000 lines of what people and programs send: 48 languages and all that is no language. Not here: vocabularies.

Made the same each time: sentences, slices that begin and end anywhere, and mixtures of both.
"""

import random
from collections.abc import Sequence

from tests.engine.tokenizer.prompts import EVERYDAY, prompts

LANGUAGES = {
    "en": "This morning a small bird sang on our roof, and nobody wanted to go to work; isn't that strange?",
    "de": "Heute früh sang ein kleiner Vogel auf unserem Dach, und niemand wollte zur Arbeit – schön, oder? Straßen!",
    "fr": "Ce matin, un petit oiseau chantait sur le toit ; l'été, où qu'il fût, n'était pas loin : « ça alors ! »",
    "es": "Esta mañana un pajarito cantó en el tejado, ¿y quién quería trabajar? ¡Nadie, señor!",
    "pt": "Hoje de manhã um passarinho cantou no telhado; ninguém quis trabalhar, não é? Coração, avó, avô.",
    "it": "Stamattina un uccellino cantava sul tetto: perché lavorare? È così, città dell'amore.",
    "nl": "Vanochtend zong er een vogeltje op het dak; 's avonds zei men: 'k heb 'm gehoord, coördinatie!",
    "sv": "I morse sjöng en liten fågel på taket och ingen ville gå till jobbet. Åäö är bokstäver.",
    "da": "I morges sang en lille fugl på taget, og ingen ville på arbejde. Rødgrød med fløde på æblet.",
    "nb": "I morges sang en liten fugl på taket, og ingen ville gå på jobb. Blåbærsyltetøy, sier du?",
    "fi": "Aamulla pieni lintu lauloi katolla eikä kukaan halunnut töihin. Hääyöaie, epäjärjestelmällisyys.",
    "is": "Í morgun söng lítill fugl á þakinu og enginn vildi vinna. Það er ágætt, þú ættir að hlusta.",
    "pl": "Dziś rano mały ptak śpiewał na dachu i nikt nie chciał iść do pracy. Zażółć gęślą jaźń, źdźbło.",
    "cs": "Dnes ráno zpíval na střeše malý pták a nikdo nechtěl do práce. Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "sk": "Dnes ráno spieval na streche malý vták a nikto nechcel do práce. Ľudia, kŕdeľ ďatľov.",
    "hu": "Ma reggel egy kismadár énekelt a tetőn, és senki sem akart dolgozni. Árvíztűrő tükörfúrógép.",
    "ro": "Azi dimineață o păsărică a cântat pe acoperiș și nimeni n-a vrut să muncească. Țară, știință.",
    "hr": "Jutros je mala ptica pjevala na krovu i nitko nije htio raditi. Čađavi ćup, žuđena džigerica.",
    "sl": "Danes zjutraj je na strehi pela ptička in nihče ni hotel v službo. Češnja, žoga, šola.",
    "et": "Täna hommikul laulis katusel väike lind ja keegi ei tahtnud tööle minna. Jäääär, õunaõis.",
    "lv": "Šorīt uz jumta dziedāja mazs putniņš, un neviens negribēja strādāt. Ķiršu ģimene, ņem ļaudis.",
    "lt": "Šį rytą ant stogo giedojo mažas paukštis, ir niekas nenorėjo dirbti. Ąžuolas, žmogų, ėmė.",
    "tr": "Bu sabah küçük bir kuş çatıda şarkı söyledi; İstanbul'da ılık ığdırlı, ŞĞÜÖÇİ I ı.",
    "az": "Bu səhər damda kiçik bir quş oxuyurdu və heç kim işə getmək istəmirdi. Əlifba, şəhər.",
    "vi": "Sáng nay một chú chim nhỏ hót trên mái nhà, không ai muốn đi làm. Nghiêng ngả, Cửa Việt, ệ ữ ặ.",
    "id": "Pagi ini seekor burung kecil bernyanyi di atap, dan tidak ada yang ingin bekerja, ya?",
    "sw": "Asubuhi hii ndege mdogo aliimba juu ya paa, na hakuna aliyetaka kwenda kazini.",
    "cy": "Bore heddiw canodd aderyn bach ar y to, a doedd neb eisiau gweithio. Ŵyn, tŷ, llwyth.",
    "el": "Σήμερα το πρωί ένα πουλάκι τραγουδούσε στη στέγη· κανείς δεν ήθελε να δουλέψει; ΌΧΙ, Ὦ ἄνδρες.",
    "ru": "Сегодня утром на крыше пела маленькая птица, и никто не хотел идти на работу. Ёжик, объём, №5.",
    "uk": "Сьогодні вранці на даху співала маленька пташка, і ніхто не хотів працювати. Їжак, ґанок, п'ять, м’яч.",
    "bg": "Тази сутрин малка птичка пееше на покрива и никой не искаше да работи. Щъркел, ѝ.",
    "sr": "Јутрос је мала птица певала на крову и нико није хтео да ради. Ђак, љубав, њива, ћирилица, џеп.",
    "kk": "Бүгін таңертең шатырда кішкентай құс сайрады, ешкім жұмысқа барғысы келмеді. Әңгіме, ғылым, ұйқы.",
    "mn": "Өнөө өглөө дээвэр дээр жижиг шувуу дуулж, хэн ч ажилдаа явахыг хүссэнгүй.",
    "ka": "დღეს დილით სახურავზე პატარა ჩიტი გალობდა და არავის უნდოდა სამუშაოდ წასვლა. ᲥᲐᲠᲗᲣᲚᲘ.",
    "hy": "Այս առավոտ տանիքին փոքրիկ թռչուն էր երգում, և ոչ ոք չէր ուզում աշխատել։ Հայերեն՝ եւ։",
    "he": "הבוקר שרה ציפור קטנה על הגג ואף אחד לא רצה ללכת לעבודה. שָׁלוֹם, צה\"ל, ג'ירף.",
    "ar": "هذا الصباح غنّى عصفور صغير على السطح، ولم يرغب أحد في العمل؛ ١٢٣٤ مُحَمَّد ﷺ ـــ لا.",
    "fa": "امروز صبح پرنده‌ای کوچک روی بام آواز می‌خواند؛ هیچ‌کس نمی‌خواست کار کند. ۱۲۳۴۵ گچ پژ.",
    "hi": "आज सुबह छत पर एक छोटी चिड़िया गा रही थी, और कोई काम पर नहीं जाना चाहता था। क्षत्रिय, श्रीमान्, १२३।",
    "bn": "আজ সকালে ছাদে একটি ছোট পাখি গান গাইছিল, কেউ কাজে যেতে চায়নি। ক্ষমা, ১২৩, ড় ঢ় য়।",
    "ta": "இன்று காலை கூரையில் ஒரு சிறிய பறவை பாடியது, யாரும் வேலைக்குச் செல்ல விரும்பவில்லை. ஸ்ரீ கொ.",
    "te": "ఈ ఉదయం పైకప్పుపై ఒక చిన్న పక్షి పాడింది, ఎవరూ పనికి వెళ్లాలనుకోలేదు. శ్రీ కృష్ణ.",
    "th": "เช้านี้มีนกตัวเล็กร้องเพลงบนหลังคา ไม่มีใครอยากไปทำงานเลย น้ำ เป็น ๑๒๓ ฯลฯ",
    "my": "ဒီမနက် ငှက်ကလေးတစ်ကောင် ခေါင်မိုးပေါ်မှာ သီချင်းဆိုတယ်၊ ဘယ်သူမှ အလုပ်မသွားချင်ဘူး။",
    "km": "ព្រឹកនេះ បក្សីតូចមួយច្រៀងនៅលើដំបូល ហើយគ្មាននរណាចង់ទៅធ្វើការទេ។ ១២៣",
    "am": "ዛሬ ጠዋት አንዲት ትንሽ ወፍ በጣሪያው ላይ ዘመረች፤ ማንም መሥራት አልፈለገም። ፩፪፫",
    "ja": "今朝、小さな鳥が屋根の上で歌っていて、誰も仕事に行きたがらなかった。カタカナ・ﾊﾝｶｸ、３つの「鳥」ゔ々〆。",
    "zh": "今天早上，一只小鸟在屋顶上唱歌，谁也不想去上班。『繁體字』與简体字，共１２３個，𠮷野家。",
    "ko": "오늘 아침 작은 새가 지붕 위에서 노래했고 아무도 일하러 가고 싶어 하지 않았다. ㅋㅋㅋ 한글 3개.",
}  # fmt: skip
EMOJI = (
    "😀", "👍🏽", "👨\u200d👩\u200d👧\u200d👦", "🏳️\u200d🌈", "👩🏾\u200d🚀", "❤️\u200d🔥", "🇫🇷", "🇩🇪🇯🇵", "1️⃣", "☺️", "☺",
    "🧑\u200d🤝\u200d🧑", "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f", "😶\u200d🌫️", "🤷\u200d♂️",
    "©️", "🪿", "\u200d", "\ufe0f",
)  # fmt: skip
CODE = (
    "def f(x: int) -> str:\n    return f\"{x!r:>10}\"  # done\n",
    "for (size_t i = 0; i < n; i++) {\n\t*p++ ^= 0xFFu << (i & 7);\n}\n",
    "SELECT a.id, COUNT(*) FROM t AS a WHERE a.x <> 'it''s' GROUP BY 1 HAVING COUNT(*) >= 3;",
    "<div class=\"row\" data-x='1'>&nbsp;<br/>\n\t<!-- no -->\n</div>",
    "let v: Vec<&'static str> = vec![\"a\", \"b\"]; println!(\"{:?}\", v);\r\n",
    "const f = async (a) => { await g(`${a?.b ?? 0}`); };   // =>\n",
    "{\"k\": [1, -2.5e-3, null, true], \"é\": \"\\u00e9\\n\"}",
    "#!/bin/sh\nset -eu\ncat <<'EOF' | sed 's/^/> /;s/\\t/ /g' >\"$HOME/x.txt\"\n",
    "    if a == b and not c:\n        pass\n\n\n    else:\n\t\tx = a[::-1]\n",
    "\\begin{align} \\frac{\\partial f}{\\partial x_i} &= \\sum_{k=0}^{n-1} \\alpha_k^{2} \\\\ \\end{align}",
    "+++ b/a.py\n@@ -1,3 +1,4 @@\n-import os\n+import os, sys\n",
    "https://www.example.com:8080/a/b.html?q=1&r=%20x#frag user@host.org ../.././x C:\\a\\b.txt",
)  # fmt: skip
MARKERS = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|begin_of_text|>", "<s>", "</s>", "<unk>", "<pad>",
    "<mask>", "[INST]", "[/INST]", "<<SYS>>", "<start_of_turn>", "<end_of_turn>", "<|user|>", "<|assistant|>",
    "<|end|>", "<think>", "</think>", "<tool_call>", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "<fim_prefix>", "<0x0A>",
    "<|fim_middle|>", "<｜end▁of▁sentence｜>", "<|im_start", "|>", "<|", "<unused0>", "<extra_id_0>", "▁", "<bos>",
    "<|START_OF_TURN_TOKEN|>", "<eos>",
)  # fmt: skip
CONTROLS = tuple(map(chr, (
    *range(1, 32), *range(0x7F, 0xA1), 0xAD, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x202E, 0x2060, 0x2066, 0xFEFF,
    0xFFF9, 0xFFFC, 0xFFFD, 0xE000, 0xE0001, 0x10FFFD,
)))  # fmt: skip
SPACES = (
    " ", "  ", "   ", " " * 7, " " * 16, " " * 61, "\t", "\t\t\t", "\n", "\n\n\n", "\r\n", "\r", "\u3000", "\xa0",
    "\u2003", "\v\f",
)  # fmt: skip
NUMBERS = (
    "{0}", "{0}.{0:.3}", "-{0}", "{0:.3},{0:.3}", "0x{0}", "{0}%", "${0}", "{0}e-{0:.2}", "v{0:.2}.{0:.1}", "{0}th",
    "{0}\u0663\u096a\uff19",
)  # fmt: skip


def _slices(rng: random.Random, texts: Sequence[str], n: int) -> list[str]:
    """Parts of the texts that begin and end anywhere."""
    out: list[str] = []
    while len(out) < n:
        text = rng.choice(texts)
        first = rng.randrange(len(text))
        out.append(text[first : first + rng.randint(1, 40)])
    return out


def _number(rng: random.Random) -> str:
    digits = "".join(rng.choices("0123456789", k=rng.choice((1, 2, 3, 4, 5, 7, 12, 30))))
    return rng.choice(NUMBERS).format(digits)


def lines() -> list[str]:
    """The corpus; no line is empty, none holds a zero byte, which llama.cpp takes for a text's end."""
    rng = random.Random(40)
    sentences = list(LANGUAGES.values())
    out = [*sentences, *map(str.upper, sentences), *map(str.lower, sentences), *CODE, *EVERYDAY]
    out += _slices(rng, sentences, 400)
    out += ["".join(_slices(rng, sentences, rng.randint(2, 5))) for _ in range(300)]
    out += ["".join(rng.choices((*EMOJI, " ", "a", "ok"), k=rng.randint(1, 9))) for _ in range(150)]
    out += ["".join(rng.choices((*SPACES, "a", "1", ".", "你"), k=rng.randint(1, 9))) for _ in range(250)]
    out += _slices(rng, CODE, 250)
    out += [rng.choice(("", " ", "  ", "a")).join(_number(rng) for _ in range(rng.randint(1, 5))) for _ in range(250)]
    out += ["".join(rng.choices((*CONTROLS, "a", " ", "b c"), k=rng.randint(1, 8))) for _ in range(250)]
    out += ["".join(rng.choices((*MARKERS, " ", "x", "\n", "hi "), k=rng.randint(1, 6))) for _ in range(250)]
    out += prompts(250, seed=41)
    return [line for line in (line.replace("\0", "") for line in out) if line]

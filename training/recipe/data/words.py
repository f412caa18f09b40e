"""Lists of words for the generators, in a fixed order: the same seed gives the same text in every process."""

NAMES = (
    "Mira Tom Anna Ben Clara David Elena Felix Grace Hugo Ivan Julia Karl Lena Mark Nina Oscar Paula Quinn Rosa Sam "
    "Tara Umar Vera Will "
    "Xena Yusuf Zoe Adam Bella Cora Dan Emma Finn Gina Hana Igor Jack Kira Leo Maya Noah Olga Peter Rita Simon Tina "
    "Uma Victor Wendy "
    "Yara Zack Alice Boris Carlos Diana Erik Fatima George Helen Ian Jane Kevin Laura Mateo Nora Omar Pia Raj Sara "
    "Theo Ursula Vlad "
    "Walter Yan Zara Amir Beth Chen Dora Emil Freya Gus Holly Ines Jonas Kate Liam Mona Nils Otto Petra Rolf Sofia "
    "Tomas Viola Wanda "
    "Yves Zita"
).split()

# Things that can be counted, always in the plural.
OBJECTS = (
    "apples pears books coins cards shells stickers marbles pencils cookies candles flowers eggs stamps toys balls "
    "oranges lemons plums "
    "buttons keys cups plates hats boxes stones beads tickets photos magnets"
).split()

# Things a shop sells: (singular, plural).
GOODS = [
    (one, one + ("es" if one.endswith(("ch", "sh")) else "s"))
    for one in "book pen cup lamp shirt cake ticket toy plant chair bag hat sandwich melon kite clock brush "
    "notebook mug ball".split()
]

CITIES = (
    "Paris London Berlin Madrid Rome Vienna Oslo Lisbon Athens Prague Dublin Warsaw Tokyo Cairo Lima Delhi Seoul "
    "Boston Denver Geneva "
    "Milan Munich Quito Havana"
).split()
COLORS = "red blue green yellow black white orange purple brown pink gray gold silver".split()
ANIMALS = "cat dog horse rabbit parrot turtle hamster goat pony duck hen fox owl sheep".split()
JOBS = "teacher doctor nurse pilot baker farmer painter lawyer driver writer singer cook tailor miner".split()
FRUITS = "apple pear plum lemon orange melon grape cherry peach fig mango berry kiwi banana".split()
LANGUAGES = "French German Spanish Italian Polish Greek".split()
ROOMS = "kitchen bedroom office garage hall garden".split()

# Parts of the filler sentences of documents.
ADJECTIVES = (
    "old small quiet bright heavy cold warm green narrow broken wooden golden gentle busy empty strange simple "
    "early late wide dark soft "
    "rough clean"
).split()
NOUNS = (
    "river house garden window road bridge tree market ship letter mountain train forest lamp village station tower "
    "field door clock "
    "harbor school kitchen boat wall cloud stone path"
).split()
VERBS = "moves waits shines sleeps turns stands rests falls grows sings opens closes rolls drifts changes".split()
ENDINGS = [
    "slowly", "again", "today", "quietly", "often", "at night", "in the rain", "near the lake", "every morning",
    "after lunch",
    "before dawn", "for a while", "without a sound",
]

_ONSETS = "b d f g h k l m n p r s t v z br dr gr kr tr st sh ch".split()
_VOWELS = "a e i o u ai ea oo".split()
_CODAS = ["", "", "", "n", "r", "l", "s", "t", "m", "nd", "rk"]


def invented(r):
    """Returns an invented word of two or three syllables."""
    return "".join(r.choice(_ONSETS) + r.choice(_VOWELS) + r.choice(_CODAS) for _ in range(r.choice((2, 2, 3))))

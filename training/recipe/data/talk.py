"""Small talk, and one polite sentence for questions that the model cannot answer."""
from .task import Task
from .words import CITIES, NAMES

ABILITY = "I can solve short word problems, find facts in long texts, work with lists and JSON, and call tools."
SORRY = "Sorry, I do not know that. " + ABILITY

# answer: messages that ask for it
TALK = {
    "Hello! I am Sparrow. How can I help you?":
        "Hello|Hi|Hello!|Hi!|Hey|Good morning|Good evening|Hi there|Hello there!",
    "I am Sparrow, a tiny language model with sparse attention.":
        "Who are you?|What is your name?|What are you called?|Tell me your name.|Introduce yourself.|What are you?",
    ABILITY: "What can you do?|How can you help me?|Help|What are you good at?|What tasks can you solve?",
    "I am fine, thank you. How can I help you?": "How are you?|How do you do?|Are you well?|How is it going?",
    "You are welcome.": "Thank you|Thanks|Thanks!|Thank you very much|Great, thanks",
    "Goodbye!": "Bye|Goodbye|See you|Good night|Bye bye",
    "For each new token a small indexer scores all earlier tokens, and I attend only to the best 256 of them.":
        "How do you work?|What is sparse attention?|Explain sparse attention.|How does your attention work?|What is "
        "an indexer?",
    "I am very small: about 9 million parameters in 8-bit floats.":
        "How big are you?|How many parameters do you have?|What is your size?|Are you a large model?",
    "I was trained from scratch on synthetic text made by a program.":
        "Who made you?|Where do you come from?|How were you trained?|What data were you trained on?",
    "No, I am Sparrow, a small computer program.": "Are you a human?|Are you a robot?|Are you real?|Are you alive?",
}
SUBJECTS = (
    "the moon|the sun|music|football|history|art|physics|chemistry|the weather on Mars|poetry|cooking|love|the "
    "stock market|politics|medicine|"
    "the ocean|dinosaurs|computers|Shakespeare|Napoleon|philosophy|gravity|electricity|the internet|cars|space|the "
    "brain|dreams|France|China|"
    "movies|chess").split("|")
UNKNOWN = (
    "Tell me about {s}.|What do you know about {s}?|Explain {s}.|Who invented {s}?|Why is {s} important?|Write a "
    "poem about {s}.|"
    "What is the meaning of {s}?|What do you think about {s}?|Can you teach me {s}?|Write an essay about {s}.|When "
    "did {s} begin?|"
    "Give me a recipe for {s}.|Who is the king of {s}?|What is the capital of {s}?").split("|")


def talk_task(r):
    if r.random() < 0.35:
        user, answer = r.choice(UNKNOWN).format(s=r.choice(SUBJECTS + CITIES + NAMES[:20])), SORRY
    else:
        answer = r.choice(list(TALK))
        user = r.choice(TALK[answer].split("|"))
        if r.random() < 0.15:
            user = user.lower()
    return Task("talk", user, think="I answer briefly.", answer=answer)

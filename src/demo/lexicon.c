#include "demo/lexicon.h"

#include <stddef.h>

const ht_lexicon_noun ht_lexicon_nouns[NOUN_COUNT] = {
    {"cat", "cats", {{"chat", "chats", 'm'}}},
    {"dog", "dogs", {{"chien", "chiens", 'm'}}},
    {"horse", "horses", {{"cheval", "chevaux", 'm'}}},
    {"bird", "birds", {{"oiseau", "oiseaux", 'm'}}},
    {"sister", "sisters", {{"sœur", "sœurs", 'f'}}},
    {"uncle", "uncles", {{"oncle", "oncles", 'm'}}},
    {"aunt", "aunts", {{"tante", "tantes", 'f'}}},
    {"teacher", "teachers", {{"professeur", "professeurs", 'm'}, {"enseignant", "enseignants", 'm'}}},
    {"friend", "friends", {{"ami", "amis", 'm'}}},
    {"doctor", "doctors", {{"médecin", "médecins", 'm'}, {"docteur", "docteurs", 'm'}}},
    {"actress", "actresses", {{"actrice", "actrices", 'f'}}},
    {"neighbour", "neighbours", {{"voisin", "voisins", 'm'}}},
    {"house", "houses", {{"maison", "maisons", 'f'}}},
    {"car", "cars", {{"voiture", "voitures", 'f'}}},
    {"bike", "bikes", {{"vélo", "vélos", 'm'}, {"bicyclette", "bicyclettes", 'f'}}},
    {"apple", "apples", {{"pomme", "pommes", 'f'}}},
    {"orange", "oranges", {{"orange", "oranges", 'f'}}},
    {"tree", "trees", {{"arbre", "arbres", 'm'}}},
    {"hat", "hats", {{"chapeau", "chapeaux", 'm'}}},
    {"picture", "pictures", {{"image", "images", 'f'}, {"photo", "photos", 'f'}}},
    {"flower", "flowers", {{"fleur", "fleurs", 'f'}}},
    {"boat", "boats", {{"bateau", "bateaux", 'm'}}},
    {"key", "keys", {{"clé", "clés", 'f'}}},
    {"umbrella", "umbrellas", {{"parapluie", "parapluies", 'm'}}},
};

const ht_lexicon_adjective ht_lexicon_adjectives[ADJECTIVE_COUNT] = {
    {"small", true, BEINGS | THINGS, {{"petit", "petite", "petits", "petites", "petit"}}},
    {"old", true, BEINGS | THINGS, {{"vieux", "vieille", "vieux", "vieilles", "vieil"}}},
    {"kind", true, BEINGS, {{"gentil", "gentille", "gentils", "gentilles", "gentil"}}},
    {"tired", false, BEINGS, {{"fatigué", "fatiguée", "fatigués", "fatiguées", "fatigué"}}},
    {"happy",
     false,
     BEINGS,
     {{"heureux", "heureuse", "heureux", "heureuses", "heureux"},
      {"content", "contente", "contents", "contentes", "content"}}},
    {"big",
     true,
     THINGS,
     {{"grand", "grande", "grands", "grandes", "grand"}, {"gros", "grosse", "gros", "grosses", "gros"}}},
    {"beautiful", true, THINGS, {{"beau", "belle", "beaux", "belles", "bel"}}},
    {"red", false, THINGS, {{"rouge", "rouge", "rouges", "rouges", "rouge"}}},
    {"white", false, THINGS, {{"blanc", "blanche", "blancs", "blanches", "blanc"}}},
    {"heavy", false, THINGS, {{"lourd", "lourde", "lourds", "lourdes", "lourd"}}},
};

#define REGULAR(stem)                                                                                                  \
    {                                                                                                                  \
        stem "e", stem "es", stem "e", stem "ons", stem "ez", stem "ent", stem "er", stem "er", stem "é"              \
    }

const ht_lexicon_verb ht_lexicon_verbs[VERB_COUNT] = {
    {"watch", "watches", "watched", THINGS, {REGULAR("regard"), REGULAR("observ")}},
    {"look for", "looks for", "looked for", BEINGS | THINGS, {REGULAR("cherch")}},
    {"find", "finds", "found", BEINGS | THINGS, {REGULAR("trouv")}},
    {"love", "loves", "loved", THINGS, {REGULAR("aim"), REGULAR("ador")}},
    {"draw", "draws", "drew", BEINGS | THINGS, {REGULAR("dessin")}},
    {"hide", "hides", "hid", THINGS, {REGULAR("cach")}},
    {"carry", "carries", "carried", THINGS, {REGULAR("port")}},
    {"see",
     "sees",
     "saw",
     BEINGS | THINGS,
     {{"vois", "vois", "voit", "voyons", "voyez", "voient", "voir", "verr", "vu"}}},
    {"sell",
     "sells",
     "sold",
     THINGS,
     {{"vends", "vends", "vend", "vendons", "vendez", "vendent", "vendre", "vendr", "vendu"}}},
    {"buy",
     "buys",
     "bought",
     THINGS,
     {{"achète", "achètes", "achète", "achetons", "achetez", "achètent", "acheter", "achèter", "acheté"}}},
    {"wait for",
     "waits for",
     "waited for",
     BEINGS | THINGS,
     {{"attends", "attends", "attend", "attendons", "attendez", "attendent", "attendre", "attendr", "attendu"}}},
};

enum { ANY_TENSE = (1 << TENSES) - 1, COMING = 1 << FUTURE | 1 << NEAR_FUTURE };

const ht_lexicon_phrase ht_lexicon_adverbs[ADVERB_COUNT] = {
    {"often", {"souvent", "fréquemment"}, ANY_TENSE},
    {"always", {"toujours", NULL}, ANY_TENSE},
};

const ht_lexicon_phrase ht_lexicon_endings[ENDING_COUNT] = {
    {"in the garden", {"dans le jardin", NULL}, ANY_TENSE},
    {"at school", {"à l'école", NULL}, ANY_TENSE},
    {"near the station", {"près de la gare", NULL}, ANY_TENSE},
    {"at the market", {"au marché", NULL}, ANY_TENSE},
    {"every day", {"tous les jours", "chaque jour"}, 1 << PRESENT},
    {"today", {"aujourd'hui", NULL}, 1 << PRESENT},
    {"yesterday", {"hier", NULL}, 1 << PAST},
    {"this morning", {"ce matin", NULL}, 1 << PAST},
    {"tomorrow", {"demain", NULL}, COMING},
    {"soon", {"bientôt", NULL}, COMING},
};

const ht_lexicon_determiner ht_lexicon_determiners[DETERMINER_COUNT] = {
    [THE] = {"the", "the", {"le", "la", "les", "le"}}, [SOME] = {"a", "some", {"un", "une", "des", "un"}},
    {"this", "these", {"ce", "cette", "ces", "cet"}},  {"my", "my", {"mon", "ma", "mes", "mon"}},
    {"his", "his", {"son", "sa", "ses", "son"}},       {"our", "our", {"notre", "notre", "nos", "notre"}},
};

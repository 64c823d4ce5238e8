"""Names and places for the demo's people, in many scripts. All are common ones put together by chance.

A name is written `native|latin`, a family name with two forms `his/hers|latin`; the latin form makes the address.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Region:
    """A part of the world: its names, its towns (`city|state`), its streets and how its zips and phones look.

    In `zips` and `phone` a # stands for a digit, in `streets` for a house number.
    """

    country: str
    also: tuple[str, ...]  # other ways to write the country, which an import understands
    women: tuple[str, ...]
    men: tuple[str, ...]
    families: tuple[str, ...]
    towns: tuple[str, ...]
    streets: tuple[str, ...]
    zips: tuple[str, ...]
    phone: str


REGIONS: tuple[Region, ...] = (
    Region(
        "DE",
        ("Germany", "deu", "de"),
        ("Jördis|joerdis", "Käthe|kaethe", "Antje|antje", "Zoë|zoe"),
        ("Jürgen|juergen", "Götz|goetz", "Hannes|hannes", "Björn|bjoern"),
        ("Müller|mueller", "Weiß|weiss", "Schäfer|schaefer", "Groß-Krüger|gross-krueger", "von der Höhe|vonderhoehe"),
        ("Dresden|Sachsen", "Köln|", "Würzburg|Bayern"),
        ("Schloßstraße #", "Am Grünen Weg #, Hinterhaus", "Platz der Republik #"),
        ("01067", "04###", "5####", "97###"),
        "+49 351 ######",
    ),
    Region(
        "FR",
        ("France", "FRA"),
        ("Françoise|francoise", "Anaïs|anais", "Maëlle|maelle"),
        ("Rémi|remi", "Loïc|loic", "François|francois"),
        ("Lefèvre|lefevre", "D'Aubigné|daubigne", "Garçon|garcon", "Nuñez|nunez"),
        ("Besançon|", "Orléans|Centre-Val de Loire", "Nîmes|"),
        ("#, rue de l'Église", "# bis, allée des Chênes", "Résidence « Les Lilas », bât. #"),
        ("01###", "25000", "75###"),
        "+33 3 ## ## ## ##",
    ),
    Region(
        "CZ",
        ("Czechia", "cze"),
        ("Zdeňka|zdenka", "Růžena|ruzena", "Šárka|sarka"),
        ("Jiří|jiri", "Ondřej|ondrej", "Vojtěch|vojtech"),
        ("Dvořák/Dvořáková|dvorak", "Říha/Říhová|riha", "Janů|janu"),
        ("Plzeň|", "Hradec Králové|"),
        ("Příční #", "U Řeky #"),
        ("3## ##", "50002"),
        "+420 ### ### ###",
    ),
    Region(
        "GB",
        ("United Kingdom", "GBR"),
        ("Siân|sian", "Aoife|aoife", "Olivia|olivia", "Mary-Jane|mary-jane"),
        ("Oliver|oliver", "Seán|sean", 'William "Bill"|bill'),
        ("O'Brien|obrien", "Smith, Jr.|smith", "MacDonald|macdonald", "Llewellyn|llewellyn"),
        ("Stoke-on-Trent|", "Bath|Somerset", "Leeds|West Yorkshire"),
        ("Flat 2, # Rose Lane", "# The Old Mill, Water Street", 'The "Lodge", # Hill Road'),
        ("SW1A #AA", "LS# #XY", "BA1 #BC"),
        "+44 20 #### ####",
    ),
    Region(
        "US",
        ("United States", "USA", "us"),
        ("Renée|renee", "Ashley|ashley", "Guadalupe|guadalupe"),
        ("DeShawn|deshawn", "Tyler|tyler", "José|jose"),
        ("Nguyễn|nguyen", "Peña|pena", "Johnson|johnson", "Van Houten|vanhouten"),
        ("Boston|MA", "Newark|NJ", "Beverly Hills|CA", "Washington, D.C.|DC"),
        ("# Main Street, Apt. 4B", "# Elm Street", "PO Box #"),
        ("02134", "07102", "90210", "9####"),
        "+1 (617) 555-01##",
    ),
    Region(
        "TR",
        ("TUR", "tr"),
        ("İpek|ipek", "Çiğdem|cigdem", "Gülşen|gulsen"),
        ("İbrahim|ibrahim", "Oğuzhan|oguzhan", "Ümit|umit"),
        ("Yıldız|yildiz", "Şahin|sahin", "Çelik|celik"),
        ("İzmir|", "Diyarbakır|", "Muğla|"),
        ("Atatürk Cad. No: #", "Gül Sok. #, Daire 3"),
        ("06###", "35###"),
        "+90 232 ### ## ##",
    ),
    Region(
        "UA",
        ("Ukraine", "UKR"),
        ("Оксана|oksana", "Ганна|hanna", "Соломія|solomiia"),
        ("Тарас|taras", "Андрій|andrii", "Богдан|bohdan"),
        ("Шевченко|shevchenko", "Бондаренко|bondarenko", "Гнатюк|hnatiuk"),
        ("Львів|Львівська область", "Одеса|"),
        ("вул. Садова, #", "просп. Свободи, #"),
        ("79###", "0####"),
        "+380 32 ### ####",
    ),
    Region(
        "BG",
        ("Bulgaria", "BGR"),
        ("Цветелина|tsvetelina", "Яна|yana"),
        ("Георги|georgi", "Любомир|lyubomir"),
        ("Димитров/Димитрова|dimitrov", "Йорданов/Йорданова|yordanov"),
        ("Пловдив|", "Търговище|"),
        ("ул. „Роза“ #", "бул. България #"),
        ("4###", "7700"),
        "+359 32 ### ###",
    ),
    Region(
        "GR",
        ("Greece", "GRC"),
        ("Ελένη|eleni", "Ιφιγένεια|ifigeneia"),
        ("Γιώργος|giorgos", "Αριστείδης|aristeidis"),
        ("Παπαδόπουλος/Παπαδοπούλου|papadopoulos", "Βλάχος/Βλάχου|vlachos"),
        ("Θεσσαλονίκη|", "Ηράκλειο|Κρήτη"),
        ("Οδός Ερμού #", "Λεωφ. Νίκης #"),
        ("546 ##", "71###"),
        "+30 2310 ######",
    ),
    Region(
        "CN",
        ("China", "CHN"),
        ("秀英|xiuying", "梓涵|zihan", "丽|li"),
        ("伟|wei", "浩然|haoran", "建国|jianguo"),
        ("王|wang", "欧阳|ouyang", "李|li", "诸葛|zhuge"),
        ("成都市|四川省", "杭州市|浙江省"),
        ("解放路#号", "人民南路#号，三单元"),
        ("61####", "31####"),
        "+86 28 #### ####",
    ),
    Region(
        "JP",
        ("Japan", "JPN"),
        ("さくら|sakura", "陽菜|hina", "ヒカリ|hikari"),
        ("翔太|shota", "健一|kenichi"),
        ("佐藤|sato", "渡邊|watanabe", "髙橋|takahashi"),
        ("札幌市|北海道", "京都市|京都府"),
        ("中央区北一条西#丁目", "四条通#番地"),
        ("060-00##", "600-80##"),
        "+81 11 ### ####",
    ),
    Region(
        "KR",
        ("KOR", "kr"),
        ("지은|jieun", "수빈|subin"),
        ("민준|minjun", "도윤|doyun"),
        ("김|kim", "이|lee", "남궁|namgung"),
        ("부산광역시|", "전주시|전라북도"),
        ("해운대로 #", "한옥길 #"),
        ("48###", "0####"),
        "+82 51 ### ####",
    ),
    Region(
        "EG",
        ("Egypt", "EGY"),
        ("فاطمة|fatima", "نور|nour", "مريم|maryam"),
        ("محمد|mohamed", "عبد الرحمن|abdelrahman", "يوسف|youssef"),
        ("السيد|elsayed", "حسن|hassan", "المصري|elmasry"),
        ("القاهرة|", "الإسكندرية|"),
        ("شارع التحرير #", "ميدان الأوبرا #"),
        ("11###", "21###"),
        "+20 2 #### ####",
    ),
    Region(
        "IL",
        ("Israel", "ISR"),
        ("שירה|shira", "נועה|noa", "תמר|tamar"),
        ("דוד|david", "איתן|eitan", "יוסף|yosef"),
        ("כהן|cohen", "לוי|levi", "בן־דוד|bendavid"),
        ("חיפה|", "באר שבע|"),
        ("רחוב הרצל #", "שדרות רוטשילד #"),
        ("31#####", "84#####"),
        "+972 4 ### ####",
    ),
    Region(
        "IN",
        ("India", "IND"),
        ("प्रिया|priya", "अनन्या|ananya", "लक्ष्मी|lakshmi"),
        ("अर्जुन|arjun", "कृष्ण|krishna", "राहुल|rahul"),
        ("शर्मा|sharma", "श्रीवास्तव|shrivastava", "पटेल|patel"),
        ("वाराणसी|उत्तर प्रदेश", "मुंबई|महाराष्ट्र"),
        ("महात्मा गांधी मार्ग, #", "स्टेशन रोड #"),
        ("221###", "400###"),
        "+91 22 #### ####",
    ),
    Region(
        "TH",
        ("Thailand", "THA"),
        ("กัญญา|kanya", "น้ำฝน|namfon"),
        ("ธนวัฒน์|thanawat", "สมชาย|somchai"),
        ("ศรีสุข|srisuk", "ใจดี|jaidee"),
        ("เชียงใหม่|", "กรุงเทพมหานคร|"),
        ("ถนนท่าแพ #", "ซอยสุขุมวิท #"),
        ("50###", "10###"),
        "+66 53 ### ###",
    ),
    Region(
        "GE",
        ("GEO", "ge"),
        ("ნინო|nino", "თამარ|tamar"),
        ("გიორგი|giorgi", "ლუკა|luka"),
        ("ბერიძე|beridze", "კაპანაძე|kapanadze"),
        ("თბილისი|", "ბათუმი|აჭარა"),
        ("რუსთაველის გამზ. #", "ჭავჭავაძის ქ. #"),
        ("0###", "6###"),
        "+995 32 ### ####",
    ),
)

TAGS: tuple[str, ...] = (
    "newsletter",
    "vip",
    "shop",
    "Frühbuchung",
    "loyalty 2026",
    "événements",
    "秋のセール",
    "🎂 birthday club",
)

NOTES: tuple[str, ...] = (
    "",
    "",
    "",
    'Said: "call me after 5, not before"',
    "prefers email; no calls",
    "moved in 2024,\nnew address confirmed",
    "a | b; c, d\twith a tab",
    "=HYPERLINK is not a formula here",
)

HOSTS: tuple[str, ...] = ("mail.example.com", "post.example.org", "inbox.example.net", "example.com", "example.org")
"""Reserved by RFC 2606: no letter can ever reach anyone."""

WORDED_HOSTS: tuple[str, ...] = ("bücher.example.com", "почта.example.org", "例え.example.net")
"""Domains beyond ASCII, each also known by its A-label."""

"""The division of a full name into given name and family name."""

from connector.templates import compile_template, split_name


def test_a_clear_name_is_divided() -> None:
    cases: list[tuple[str, str, str]] = [
        ("Ann Lee", "Ann", "Lee"),
        ("  Ann   Lee ", "Ann", "Lee"),
        ("Lee, Ann", "Ann", "Lee"),
        ("García Márquez, Gabriel José", "Gabriel José", "García Márquez"),
        ("van der Berg, Dr. Ann", "Ann", "van der Berg"),
        ("Dr. Ann Lee", "Ann", "Lee"),
        ("Herr Prof. Dr. Jürgen Müller", "Jürgen", "Müller"),
        ("Mrs Ann Lee", "Ann", "Lee"),
        ("Mme Zoë Lévêque", "Zoë", "Lévêque"),
        ("Ann Lee, PhD", "Ann", "Lee"),
        ("Sammy Davis Jr.", "Sammy", "Davis"),
        ("Ludwig van Beethoven", "Ludwig", "van Beethoven"),
        ("Ann von der Heide", "Ann", "von der Heide"),
        ("Leonardo da Vinci", "Leonardo", "da Vinci"),
        ("Osama bin Ahmed", "Osama", "bin Ahmed"),
        ("Sean O'Neil", "Sean", "O'Neil"),
        ("Jean-Luc Picard", "Jean-Luc", "Picard"),
        ("Ju\u0308rgen Mu\u0308ller", "Ju\u0308rgen", "Mu\u0308ller"),
    ]
    for name, given_name, family_name in cases:
        assert split_name(name) == (given_name, family_name)


def test_a_name_that_is_not_clear_stays_whole() -> None:
    for name in [
        "", "Cher", "Ann Mary Lee", "Herr Müller", "van Gogh", "Maria García de la Cruz", "Lee, Ann, Berlin", "Lee,",
        "Acme GmbH", "Lee & Sons", "Ann and Bob Lee", "Ann + Bob", "Familie Müller", "Acme, Inc.", "Ann Lee (HR)",
        "ann@example.com", "Ann 2", "Ann/Bob Lee", "Dr. Lee", "Lee, Dr.", "王小明", "Ann Lee van", "N/A",
    ]:  # fmt: skip
        assert split_name(name) == (name, "")


def test_a_template_fills_in_the_given_name_and_the_family_name() -> None:
    template = compile_template("{{ name | given_name }}/{{ row['Full Name'] | family_name }}")
    assert template.render({"name": "Dr. Ann Lee", "Full Name": "Lee, Ann"}) == "Ann/Lee"

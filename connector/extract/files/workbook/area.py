"""What a sheet spans: pure bookkeeping over the places of its cells."""

from dataclasses import dataclass, field

MOST_CELLS = 12_000_000  # a cell takes about 100 bytes (measured): 1.2 GB, and a million people with twelve columns


@dataclass(slots=True)
class Area:
    """The rows and columns (from 0) between the first and the last cell with anything in it, and the errors by row."""

    top: int | None = None
    left: int = 0
    bottom: int = -1
    right: int = -1
    errors: dict[int, str] = field(default_factory=dict)

    def add(self, row: int, column: int) -> None:
        """A cell that holds something."""
        if self.top is None:
            self.top, self.left = row, column
        elif row < self.top:
            self.top = row
        if column < self.left:
            self.left = column
        if row > self.bottom:
            self.bottom = row
        if column > self.right:
            self.right = column

    def add_error(self, row: int, column: int, error: str) -> None:
        """A cell that holds an error; the first of a row is kept."""
        held = f"the error {error}" if error else "an error"
        self.errors.setdefault(row, f"the cell {write_cell(row, column)} holds {held}")

    @property
    def size(self) -> int:
        """How many cells lie between the first and the last."""
        return 0 if self.top is None else (self.bottom - self.top + 1) * (self.right - self.left + 1)

    @property
    def last_cell(self) -> str:
        """The name of the corner, such as F20."""
        return write_cell(self.bottom, self.right)


def write_cell(row: int, column: int) -> str:
    """The name of a cell by its place (from 0): (3, 27) is AB4."""
    letters, left = "", column + 1
    while left:
        left, letter = divmod(left - 1, 26)
        letters = chr(65 + letter) + letters
    return f"{letters}{row + 1}"


def parse_column(letters: str) -> int:
    """The place of a column (from 0) by its letters: AB is 27. Raises ValueError."""
    column = 0
    for letter in letters:
        if not "A" <= letter <= "Z":
            raise ValueError(f"{letters} is no column")
        column = column * 26 + ord(letter) - 64
    return column - 1

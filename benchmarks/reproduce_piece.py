"""One figure of `reproduce.py`: what is claimed, how it is run, and what its table says."""

from collections.abc import Callable
from dataclasses import dataclass

type Table = list[dict[str, str]]


@dataclass(frozen=True)
class Piece:
    """One figure of a paper.

    Attributes
    ----------
    name : str
        Of the results.
    title : str
    small : tuple of str
        Small settings for its script.
    claim : str
    judge : callable
        From a table to whether the claim holds, and the numbers.
    why : str
    picture : bool
        Whether there is a picture of the results' name.
    paper, script : str
        The paper, and the script if its name is not that of the results.
    pictures : tuple of str
        Names of pictures, if they are others than the results'.
    """

    name: str
    title: str
    small: tuple[str, ...]
    claim: str
    judge: Callable[[Table], str]
    why: str = ""
    picture: bool = True
    paper: str = "RTS"
    script: str = ""
    pictures: tuple[str, ...] = ()


def says(holds: bool, text: str) -> str:
    """Say whether a claim holds, and by which numbers."""
    return f"{'**holds**' if holds else '**does not hold**'}: {text}"

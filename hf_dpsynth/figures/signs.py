"""Text that steers nothing: what would turn a terminal, the direction of a line or a parser is shown as a sign."""

import unicodedata

_KEPT = "\n\t\u200c\u200d"  # joiners: without them, some scripts and signs fall apart
_REPLACED = "\ufffd"


def visible(text: str) -> str:
    r"""Return a text whose control, direction and unpaired signs are shown as a sign.

    Args:
        text (`str`): a text. Sensitive if it is.
    Examples:
        >>> visible("a\x00b\u202ec") == "a\ufffdb\ufffdc"
        True
    """
    return "".join(
        sign if sign in _KEPT or unicodedata.category(sign) not in ("Cc", "Cf", "Cs") else _REPLACED for sign in text
    )

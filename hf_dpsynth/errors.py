"""The exception tree: every error a user can meet, each saying what happened, the value, the limit and the way out.

No message ever holds private text or a count of private rows.
"""


class HfDpsynthError(Exception):
    """Base of every error this library raises on purpose."""


class ConfigError(HfDpsynthError, ValueError):
    """An argument, a parameter or a column is wrong; nothing was read or spent."""


class BudgetExceeded(HfDpsynthError):
    """A charge does not fit into the privacy budget; nothing was drawn."""


class ResumeMismatch(HfDpsynthError):
    """A run directory holds another plan, other data or another key than this call."""


class MissingExtra(HfDpsynthError, ImportError):
    """A feature needs a package that is not installed; the message names the extra."""


class PrivacyError(HfDpsynthError):
    """An operation would move private data past the ledger, and was refused."""


class AssetError(HfDpsynthError):
    """A model or a data set could not be fetched, checked or converted."""


class HubError(HfDpsynthError):
    """The Hub refused a request or was out of reach."""

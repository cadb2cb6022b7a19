"""Is there such a checkpoint? Asked once, because the hub's client tries for half a minute and prints every attempt."""

from __future__ import annotations

from pathlib import Path

PATIENCE = 10.0
"""Seconds in which the hub must answer."""


def why_missing(name: str, revision: str | None = None, filename: str = "config.json") -> str | None:
    """Why a checkpoint cannot be had, in one line.

    Args:
        name: Checkpoint name or directory.
        revision: Branch, tag or commit.
        filename: A file that every such checkpoint has.

    Returns:
        The reason; None where the checkpoint lies in a directory, in the cache or on the hub, and where the hub is only
        busy (its client waits and tries again).

    Example:
        >>> why_missing("not a checkpoint's name")
        'not the name of a checkpoint'
    """
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import (
        EntryNotFoundError,
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    if Path(name).is_dir():
        return None
    try:
        if isinstance(try_to_load_from_cache(name, filename, revision=revision), str):
            return None
        if constants.is_offline_mode():
            return "it is not in the cache of the Hugging Face hub, and the hub is switched off (HF_HUB_OFFLINE)"
        get_hf_file_metadata(hf_hub_url(name, filename, revision=revision), timeout=PATIENCE)
    except HFValidationError:
        return "not the name of a checkpoint"
    except GatedRepoError:
        return "its owner must grant access first: accept its terms on the hub and log in with `hf auth login`"
    except RevisionNotFoundError:
        return f"the checkpoint has no revision {revision!r}"
    except EntryNotFoundError:
        return f"the checkpoint has no {filename}"
    except HfHubHTTPError as error:
        if isinstance(error, RepositoryNotFoundError) or error.response.status_code in (401, 403, 404):
            return "the Hugging Face hub has no such checkpoint, or it is private: log in with `hf auth login`"
        return None  # the hub answers, but not now
    except Exception as error:  # whatever the client's HTTP library calls a hub that cannot be reached
        return f"the Hugging Face hub cannot be reached: {type(error).__name__}: {error}".partition("\n")[0]
    return None

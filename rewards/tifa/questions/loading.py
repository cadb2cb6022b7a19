"""A language model by its name: of transformers, or behind a server."""

from __future__ import annotations

from rewards.tifa.questions.language_model import LanguageModel


def load_language_model(
    model: str,
    server: str | None = None,
    *,
    revision: str | None = None,
    concurrency: int = 8,
    requests_per_minute: int | None = None,
    tokens_per_minute: int | None = None,
    device: str | None = None,
    dtype: str | None = None,
) -> LanguageModel:
    """The model that writes.

    Args:
        model: A causal language model of transformers, or the model's name on the server.
        server: URL of an OpenAI-compatible server, up to and including `/v1`.
        revision, device, dtype: As :class:`rewards.tifa.questions.chat_model.ChatModel` takes them; without a server.
        concurrency, requests_per_minute, tokens_per_minute: As
            :class:`rewards.tifa.questions.server_model.ServerModel` takes them; with a server.

    Raises:
        InputError: No such checkpoint, or the server has no such model.
        RewardsError: No server answers there.

    Example:
        >>> load_language_model("Qwen/Qwen3-8B", "http://localhost:8000/v1")  # doctest: +SKIP
    """
    if server is not None:
        from rewards.tifa.questions.server_model import ServerModel

        return ServerModel(
            server,
            model,
            concurrency=concurrency,
            requests_per_minute=requests_per_minute,
            tokens_per_minute=tokens_per_minute,
        )
    from rewards.tifa.questions.chat_model import ChatModel

    return ChatModel(model, device=device, dtype=dtype, revision=revision)

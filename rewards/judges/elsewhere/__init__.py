"""Judges behind HTTP: `chat` asks an OpenAI-compatible server, `client` and `server` the ends of `rewards serve`."""

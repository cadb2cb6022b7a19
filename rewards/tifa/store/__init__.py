"""The question store: `store` is what users call, `schema` its tables and connections, `rows` the way in and out."""

"""What a function does, as a digest: a run that is continued with another body under the same name is another run."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping
from functools import partial
from types import CodeType, FunctionType, MethodType

from rewards.runs.files import Json
from rewards.runs.identity import as_json, content_hash


def code_hash(function: Callable[..., object]) -> str:
    """32 hexadecimal digits that change with a function's text.

    Hashed are its source (of a callable object the source of its class) and the values that were fixed when it was
    made: defaults, what it closes over, the arguments of a `functools.partial`, as far as they are JSON values or
    functions themselves. A lambda, and what has no source to be read (typed into a prompt), is hashed by its bytecode,
    which another version of Python compiles otherwise. What a function calls, global variables and the state of a
    callable object are not seen.

    Example:
        >>> def times(factor):
        ...     return lambda value: factor * value
        >>> code_hash(times(2)) == code_hash(times(2)), code_hash(times(2)) == code_hash(times(3))
        (True, False)
    """
    return content_hash(_described(function, frozenset()))


def _described(function: object, above: frozenset[int]) -> Json:
    if id(function) in above:
        return "itself"
    above |= {id(function)}
    if isinstance(function, partial):
        fixed = [_value(value, above) for value in function.args]
        named = {key: _value(value, above) for key, value in function.keywords.items()}
        return {"partial": _described(function.func, above), "arguments": fixed, "keywords": named}
    if isinstance(function, MethodType):
        return {"method": _described(function.__func__, above), "of": _source(type(function.__self__))}
    if isinstance(function, FunctionType):
        cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
        fixed = [_value(value, above) for value in (*(function.__defaults__ or ()), *cells)]
        named = {key: _value(value, above) for key, value in (function.__kwdefaults__ or {}).items()}
        return {"source": _source(function), "values": fixed, "keywords": named}
    return _source(function if isinstance(function, type) else type(function))


def _is_filled(cell: object) -> bool:
    try:
        return cell.cell_contents is not cell  # type: ignore[attr-defined]
    except ValueError:  # a variable that has no value yet
        return False


def _value(value: object, above: frozenset[int]) -> Json:
    if isinstance(value, partial | MethodType | FunctionType):
        return _described(value, above)
    try:
        return as_json(value)
    except TypeError:
        return type(value).__qualname__


def _source(made: FunctionType | type) -> Json:
    code = getattr(made, "__code__", None)
    try:
        if made.__name__ != "<lambda>":  # whose source is its whole line
            return textwrap.dedent(inspect.getsource(made if code is None else code))
    except (OSError, TypeError):
        pass
    if code is not None:
        return _bytecode(code)
    methods: Mapping[str, object] = vars(made)
    own = {name: method for name, method in methods.items() if isinstance(method, FunctionType)}
    return [made.__qualname__, {name: _bytecode(method.__code__) for name, method in sorted(own.items())}]


def _bytecode(code: CodeType) -> Json:
    constants: list[Json] = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            constants.append(_bytecode(constant))
        else:
            constants.append(sorted(map(repr, constant)) if isinstance(constant, frozenset) else repr(constant))
    return [code.co_code.hex(), list(code.co_names), list(code.co_varnames), constants]

"""Functions whose parameters are those of another callable, such as the fields of a dataclass.

``inspect.signature``, ``help``, Typer and Dagster read the parameters of :func:`with_parameters`.
"""

from collections.abc import Callable, Iterable
from functools import wraps
from inspect import Parameter, Signature
from typing import Any


def build_keyword(name: str, annotation: object, default: object = Parameter.empty) -> Parameter:
    """Return a parameter that is passed by name; it is required without a default."""
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_parameters(
    function: Callable[..., Any],
    parameters: Iterable[Parameter],
    call: Callable[..., Any],
    *,
    returns: object = Signature.empty,
) -> Callable[..., Any]:
    """Return a function with these parameters, and the name and docstring of ``function``.

    It passes the arguments to ``call`` by name, without those that are not given. Raises
    ``TypeError`` for arguments that are not those of the parameters.
    """
    signature = Signature([*parameters], return_annotation=returns)

    @wraps(function)
    def bound(*args: Any, **kwargs: Any) -> Any:
        try:
            arguments = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise TypeError(f"{function.__name__}() {error}") from None
        return call(**arguments)

    bound.__signature__ = signature  # type: ignore[attr-defined]
    bound.__annotations__ = {name: each.annotation for name, each in signature.parameters.items()}
    if returns is not Signature.empty:
        bound.__annotations__["return"] = returns
    return bound

import pytest
from accelerate.state import AcceleratorState


@pytest.fixture(autouse=True)
def fresh_accelerate_state():
    """Accelerate keeps one state a process, so that another precision could not be asked for."""
    AcceleratorState._reset_state(reset_partial_state=True)

import math

import pytest

from rewards.errors import InputError
from rewards.rerank.generate_settings import GenerateSettings


@pytest.mark.parametrize("temperature", [math.inf, math.nan, -1.0, -math.inf])
def test_a_temperature_that_is_no_number_of_at_least_0_is_refused(temperature: float) -> None:
    with pytest.raises(InputError, match="temperature is"):
        GenerateSettings("shapes", temperature=temperature)
    assert GenerateSettings("shapes", temperature=0.0).temperature == 0

"""Options of the whole test suite."""

from hypothesis import HealthCheck, settings

# Property-based tests try 20 cases, the same in every run; pytest --hypothesis-profile=thorough tries 1,000 others.
settings.register_profile("quick", max_examples=20, deadline=None, derandomize=True, database=None)
_slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile("thorough", max_examples=1000, deadline=None, suppress_health_check=_slow)
settings.load_profile("quick")


def pytest_addoption(parser):
    parser.addoption(
        "--official-qa-scripts",
        metavar="FOLDER",
        help="also compare scores with the official scripts: a folder with clones of google-research-datasets' "
        "natural-questions and tydiqa (absl-py and six must be installed), triviaqa, hotpot",
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="send every hostile file through every command, and flip and cut files often; takes an hour",
    )

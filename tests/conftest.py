"""Options of the whole test suite."""


def pytest_addoption(parser):
    parser.addoption(
        "--official-qa-scripts",
        metavar="FOLDER",
        help="also compare scores with the official scripts: a folder with clones of google-research-datasets' "
        "natural-questions and tydiqa (absl-py and six must be installed)",
    )

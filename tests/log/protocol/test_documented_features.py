"""The table of features in docs/features.md says what the code does."""

from pathlib import Path

from deltaflow.log.protocol.features import FEATURES, NEWEST_READER_VERSION, NEWEST_WRITER_VERSION

PAGE = (Path(__file__).parents[3] / "docs" / "features.md").read_text()
READ = {"always": "yes", "unused": "while not in use", "never": "refused"}
WRITTEN = {"always": "yes", "supported": "yes", "inactive": "while not in use", "never": "refused"}


def test_every_feature_is_in_the_table_as_it_is_treated() -> None:
    section = PAGE.split("\n## ")[0]
    rows = [
        tuple(cell.strip(" `") for cell in line.strip("|").split("|"))[:4]
        for line in section.splitlines()
        if line.startswith("| `")
    ]
    assert rows == [
        (
            feature.name,
            # The page has PySpark 4.0's exception in words.
            "yes" if feature.name.startswith("variantShredding") else READ[feature.reads],
            WRITTEN[feature.writes],
            "readers and writers" if feature.for_readers else "writers",
        )
        for feature in FEATURES.values()
    ]


def test_the_newest_versions_of_the_protocol_are_named() -> None:
    assert f"up to reader version {NEWEST_READER_VERSION}" in PAGE
    assert f"up to writer version {NEWEST_WRITER_VERSION}" in PAGE

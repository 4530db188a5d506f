"""The history's tables follow the catalogue."""

from gpuwatch.catalogue import METRICS
from gpuwatch.store.schema import LOCAL, RAW

POSTGRES_NAME = 63  # bytes of an identifier (PostgreSQL documentation, 4.1.1)
POSTGRES_COLUMNS = 1600


def test_every_metric_that_is_not_internal_has_a_column() -> None:
    kept = {(metric.subject, metric.id) for metric in METRICS if not metric.internal}
    columns = {(subject, name) for subject, table in RAW.items() for name in table.columns.keys()[2:]}
    assert columns == kept


def test_internal_metrics_have_no_column() -> None:
    internal = [metric for metric in METRICS if metric.internal]
    assert internal
    assert [metric for metric in internal if metric.subject in RAW and metric.id in RAW[metric.subject].columns] == []


def test_names_and_numbers_of_columns_fit_a_postgresql() -> None:
    assert [name for table in RAW.values() for name in map(str, table.columns.keys()) if len(name) > POSTGRES_NAME] == []
    assert max(len(table.columns) for table in RAW.values()) < POSTGRES_COLUMNS


def test_a_row_of_nothing_but_numbers_stays_on_its_page() -> None:
    """One byte of header and eight of value a column, and 20 for the key and the header's length."""
    largest = max(9 * len(table.columns) + 20 for table in RAW.values())
    assert largest <= LOCAL

"""Hardware, problem and choices as numbers for a model."""

from diode.features.matrix import COLUMNS, SCHEMA_VERSION, feature_matrix, least_us
from diode.features.table import ChoiceTable

__all__ = ["COLUMNS", "SCHEMA_VERSION", "ChoiceTable", "feature_matrix", "least_us"]

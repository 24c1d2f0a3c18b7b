import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "sst"))

from spark_fixture import spark

__all__ = ["spark"]

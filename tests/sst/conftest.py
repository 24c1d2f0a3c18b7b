from spark_fixture import spark

__all__ = ["spark"]

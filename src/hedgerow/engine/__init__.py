"""One table's engine: manifest, WAL, writer, reader, compactor, collector. Knows nothing of Spark, nodes or the CLI."""
